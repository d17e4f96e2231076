"""The state of a virtual Pluto's chip and cores: the AD9361, tone generators, registers, words and their scales."""
