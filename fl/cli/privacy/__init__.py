"""Commands about epsilon: before a run, and after it."""
