"""Radios, and the air between them when it is simulated.

Conventions of this package:

* Samples are complex64 of shape (n,) with |x| <= 1 meaning converter full scale. Overdrive is an error, or a clip that
  is counted where the caller allows it, never a wrap.
* Time is a sample counter, never a wall clock: `start_sample` is an index in the counter of the radio it is given to.
  Counters of radios on a shared clock are equal; those of free-running radios drift apart.
* Gains in settings are decibels of amplitude ratio (20 log10). A transmitter at 0 dB sends full scale as 1.0, and the
  noise at a receiver's input (`noise_var_complex`, E|z|^2 per sample) has the same unit.
* Settings are written, read back and compared; a lab's limits are checked before anything is written.
* `errors` has everything that can go wrong; all of it derives from `phy.errors.AirdpError`.

`radio` is the contract of every backend, `loopback` the backend on the simulated air of `medium`, `pluto_lab` that of
ADALM-Plutos and `pluto_virtual` that of emulated ones, `lab` the file that says which radios there are.
"""
