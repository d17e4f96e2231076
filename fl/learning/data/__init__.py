"""Data sets and how they are divided among the clients.

Conventions, for every module here:

- ``x`` is float32 of shape (n, D), one flattened sample per row; ``Dataset.sample_shape`` is the shape before.
  Image values lie in [0, 1], ink is bright on dark, images are upright. Synthetic features are real numbers.
- ``y`` is int64 of shape (n,), labels 0 .. C-1. K is the number of clients; a client is an index 0 .. K-1.
- A partition holds indices into the *training* set. The test set is the server's and is never divided.
- Randomness is always a ``numpy.random.Generator`` argument: the same state gives the same data and partition.
- What cannot be loaded or divided as asked raises ``fl.errors.DataError``.
"""
