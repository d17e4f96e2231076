"""The conversation of an uplink, written down as it is held, and held again from what was written down."""
