"""Radios, and the air between them when it is simulated.

Samples are complex64 with |x| <= 1 meaning converter full scale; time is a sample counter, never a wall clock.
"""
