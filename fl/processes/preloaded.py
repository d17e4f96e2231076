"""Imported once by the process that nodes are forked from: all that a node needs.

What is there by then is taken out of the garbage collector's hands, which would otherwise write to every page of it.
"""

import gc

import fl.learning.data.digits
import fl.processes.node
import hardware.lab.registry

__all__ = ["fl", "hardware"]

gc.collect()
gc.freeze()
