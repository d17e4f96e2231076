"""The parts of a virtual N210 with an SBX daughterboard: registers, memories, clock, synthesisers."""
