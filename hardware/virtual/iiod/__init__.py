"""Virtual Plutos: a server that speaks the network protocol of libiio 0.2x, its antennas in the simulated air.

Unmodified clients (pyadi-iio, the iio_* tools, gr-iio) connect to `Emulator.uris` as to hardware. The parts:

* `emulator` has the addresses and the threads, `session` the commands, `connection` the socket and its limits.
* `devices` lists devices and attributes (`attributes`) as a client sees them. `radio` has the state behind them: `chip`
  (the AD9361, tone generators, registers, words) and `buffers` (queues of samples).
* `virtual_lab` is all radios of a lab and their buffers under one lock.
* `backend` opens such radios like real ones, `emulated_air` is what their air can be told.

The FIR filters of the chip do not shape the signal. A cyclic buffer holds nothing up and moves nothing on. What is
modelled after which source is in docs/labs/virtual-pluto.md; the rest is common to virtual devices: see
`hardware.virtual`.
"""
