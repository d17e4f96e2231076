"""USRPs through UHD: bursts and captures at ticks of a clock that all boxes share."""
