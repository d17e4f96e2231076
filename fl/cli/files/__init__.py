"""Commands that write or describe files: a config or lab to begin with, their schema, completion for shells."""
