"""What takes the time in `phy`, in forms that a processor likes: batches of Fourier transforms, compiled loops."""
