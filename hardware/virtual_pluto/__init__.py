"""Virtual Plutos: a server that speaks the network protocol of libiio 0.2x, its antennas in the simulated `Medium`.

Unmodified clients (pyadi-iio, the iio_* tools, gr-iio) connect to `Emulator.uris` as to hardware. The parts:

* `emulator` has the addresses and the threads, `session` the commands, `connection` the socket and its limits.
* `devices` lists devices and attributes as a client sees them (`attributes`), `phy_device` those of the AD9361, whose
  settings `chip_settings` turns into text. `radio` has the state behind them: `transceiver` (the AD9361), `dds`
  (tones), `registers`, `buffers` (queues of samples).
* `virtual_lab` is all radios of a lab under one lock, `air` the radios at one sample rate and the steps of their
  time, `pace` drives time by the wall clock, `words` converts between words and samples.

Conventions:

* Radios whose sample rates differ do not hear each other, nor do those tuned further apart than half the receiver's
  bandwidth. A smaller difference of their frequencies is a carrier frequency offset. The sender's bandwidth and the
  FIR filters do not shape the signal; automatic gain control does not act: the gain stays what it was.
* Lockstep, the default: time advances only while every open transmit buffer has samples and every open receive buffer
  has room. Nothing is lost, and the same requests in the same order give the same samples, bit for bit. A cyclic buffer
  holds nothing up and moves nothing on. Paced: time follows the wall clock, buffers over- and underflow.
* A radio radiates nothing while its samples are zero, not even carrier leakage, and does not hear itself.
"""

from hardware.virtual_pluto.emulator import Emulator

__all__ = ["Emulator"]
