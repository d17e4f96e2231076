"""Signal processing as pure functions of arrays: no input or output, no clock, no hidden randomness.

Conventions that every package follows:

* A *coordinate* is one real number of the model update; a *cell* is one complex value that carries two coordinates, I
  and Q.
* `noise_var_real` is the variance of one real coordinate (the paper's sigma_c^2); `noise_var_complex` is the variance
  E|z|^2 of a circular complex value and is twice as large. `phy.units` has the only conversion between them.
* Transforms are unitary, so that noise variance is the same before and after them.
* Randomness is an explicit `numpy.random.Generator` argument.
* Samples are complex64 (..., n) with full scale |x| = 1.0 and a time axis that counts samples. Cells are complex64
  (..., symbols, data_subcarriers), subcarriers from the most negative to the most positive frequency. Batch dimensions
  come first.
* Units stand in names: `_db`, `_hz`, `_sample`. Gains `h` are complex amplitudes, never powers.
"""
