"""Local training against PyTorch's plain loop and against other frameworks."""
