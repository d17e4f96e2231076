"""The server's side of learning: what is done with an aggregate, as it comes and with a memory of earlier ones."""
