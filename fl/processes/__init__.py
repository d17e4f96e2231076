"""Nodes as programs: a client or a jammer beside its radio, and all nodes of a lab on one machine."""
