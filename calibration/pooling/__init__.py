"""Noise that is counted on: the shape of its spectrum from all silences that agree, its level from the latest."""
