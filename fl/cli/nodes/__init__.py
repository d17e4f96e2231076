"""Commands about nodes in processes of their own."""
