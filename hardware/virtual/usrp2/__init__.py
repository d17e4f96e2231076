"""Virtual USRPs: N210s (revision 4) with an SBX (version 4) that libuhd takes for hardware, in the simulated air.

Everything goes over UDP, to ports that cannot be chosen, of an address for each box. The parts:

* `emulator` has the addresses and the thread for datagrams, `port` the sockets of a box, `wire` what goes over them.
* `radio` is a box: its registers, and behind them `device` (clock, memories, oscillators, pins) and its streams
  (`rx_stream`, `tx_queue`).
* `virtual_lab` is all boxes of a lab under one lock, and how their time passes.
* `side_channel` is what no real box has: its state and faults for the asking, and the air's fading (`emulated_air`).
* `backend` serves them, and opens them like real ones.

Filters do not shape the signal, and both antenna connectors lead to the same antenna. A box that sends at another rate
than it receives at is not heard. The rest is common to virtual devices: see `hardware.virtual`.
"""
