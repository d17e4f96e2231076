"""Virtual devices: servers that vendors' own drivers take for hardware, their antennas in the simulated air.

`iiod` is the Pluto, `usrp2` the USRP N210. What they share: `addresses` are those of loopback, `shared_time` has the
radios at one sample rate and the steps of their time, `antennas` all radios of a lab under one lock, `pace` drives time
by the wall clock, and `process` has a server in a process of its own (`python -m hardware.virtual`).

* Radios of different sample rates hear each other where their kind says so (`Antennas`), and then whatever of their
  bands overlaps; otherwise those within half the receiver's bandwidth. A difference of their frequencies is a carrier
  frequency offset.
* Lockstep, the default: time advances only while every stream that is sent from has samples and every one received into
  has room. Nothing is lost, and the same requests in the same order give the same samples, bit for bit. Paced: time
  follows the wall clock, streams over- and underflow.
* A radio radiates nothing while its samples are zero, not even carrier leakage, and hears itself only where the lab
  says so (`leakage_db`).
"""
