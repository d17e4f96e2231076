"""What was measured about a lab, as records that say where they come from.

Gains are complex amplitudes from a transmitter's full-scale coordinate to the receiver's coordinate (`phy`
conventions).
"""
