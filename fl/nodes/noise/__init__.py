"""Noise of an uplink: how much is planned for it, and how much of that counts after it."""
