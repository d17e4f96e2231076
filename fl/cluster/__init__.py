"""Dask clusters that exist already: how they are reached, for sweeps and for the clients of one run."""
