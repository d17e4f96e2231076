"""Noise from many silences together: the shape of its spectrum from all that agree, its level from the latest."""
