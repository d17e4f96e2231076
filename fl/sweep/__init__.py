"""Grids of configs times trials: planned, run on cores or a cluster, summarised."""
