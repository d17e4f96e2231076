"""One radio uplink of a run, in numbers and pictures."""
