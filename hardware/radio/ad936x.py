"""The transceiver that is in a Pluto and in a USRP B200, as far as its settings go."""

from hardware.radio.settings import Capabilities

AD936X = Capabilities(
    sample_rate_hz=(520_834.0, 61.44e6),
    center_hz=(70e6, 6e9),
    bandwidth_hz=(200e3, 56e6),
    tx_gain_db=(-89.75, 0.0),
    rx_gain_db=(-3.0, 71.0),
    tx_gain_step_db=0.25,
    rx_gain_step_db=1.0,
    gain_scale="0 dB is full power",
)
"""With the wide range of a Pluto's firmware. Simulated radios have it too, so that lab files move to real ones."""
