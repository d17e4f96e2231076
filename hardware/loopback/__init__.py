"""Radios in the simulated air of this process."""
