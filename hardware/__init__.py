"""Radios, and the air between them when it is simulated.

Conventions of this package:

* Samples are complex64 of shape (n,) with |x| <= 1 meaning converter full scale. Overdrive is an error, or a clip that
  is counted where the caller allows it, never a wrap.
* Time is a sample counter, never a wall clock: `start_sample` is an index in the counter of the radio it is given to.
  Counters of radios on a shared clock are equal; those of free-running radios drift apart.
* Gains in settings are decibels of amplitude ratio (20 log10). A transmitter at 0 dB sends full scale as 1.0, and the
  noise at a receiver's input (`noise_var_complex`, E|z|^2 per sample) has the same unit.
* Settings are written, read back and compared; a lab's limits are checked before anything is written.
* `radio.errors` has everything that can go wrong; all of it derives from `phy.errors.AirdpError`.

Rooms, the lower ones first: `foundation`; `radio`, the contract of every radio; `lab`, which radios there are and the
registry of backends; `air`, the simulated one, `counted`, radios without timestamps, and `recording`, what a radio
received; then a room for each backend, which is one registration (`lab.registry`); `virtual`, devices that real drivers
take for hardware.
"""
