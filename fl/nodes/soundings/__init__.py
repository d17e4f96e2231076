"""What a sounding shows of a transmitter, with bounds on errors: channel, mirror image, gain at lower levels."""
