"""What every radio is: the contract, its settings, the samples at its border, and what can go wrong."""
