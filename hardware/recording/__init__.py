"""Recordings of what radios received or sent, as SigMF, and a radio that plays them back."""
