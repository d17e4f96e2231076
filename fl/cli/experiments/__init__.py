"""Commands that make runs and read them."""
