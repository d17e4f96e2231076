"""The lab that backends are tried in: a sender and a receiver."""

from typing import Any

from hardware.lab.file import parse_lab
from hardware.lab.model import Lab


def pair_lab(lab: dict[str, Any], medium: dict[str, Any], **sections: dict[str, Any]) -> Lab:
    """With nothing but noise in their way unless `medium` says otherwise. sections: of the backend."""
    return parse_lab(
        {
            "lab": {
                "name": "pair",
                "sample_rate_hz": 4e6,
                "center_hz": 2.45e9,
                "tx_gain_db": -0.25,
                "rx_gain_db": 0.0,
                **lab,
            },
            "limits": {"band_hz": [2.4e9, 2.5e9], "max_tx_gain_db": -0.25, "max_rx_gain_db": 30.0},
            "radio": [{"name": "receiver", "role": "ps"}, {"name": "sender", "role": "client"}],
            "medium": {"noise_var_complex": 1e-6, **medium},
            **sections,
        }
    )
