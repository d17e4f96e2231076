"""Observers: radios that only listen, at a place of their own."""

from typing import Any

import numpy as np
import pytest

from hardware.lab.file import parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab
from hardware.radio.errors import LabFileError
from tests.hardware.simulated import medium_in


def lab_with(observers: list[dict[str, Any]], **medium: Any) -> Lab:
    return parse_lab(
        {
            "lab": {
                "backend": "loopback",
                "sample_rate_hz": 5e6,
                "center_hz": 2.45e9,
                "tx_gain_db": 0.0,
                "rx_gain_db": 0.0,
            },
            "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
            "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client"}, *observers],
            "medium": medium,
        }
    )


def test_any_number_listens_and_none_of_them_sends() -> None:
    lab = lab_with([{"name": "ear", "role": "observer", "count": 2}])
    assert [radio.name for radio in lab.observers] == ["ear-1", "ear-2"]
    assert all(radio.receives for radio in lab.observers)
    assert lab.observers[0] not in lab.clients
    assert parse_lab(lab.to_tables()).observers == lab.observers


def test_an_observer_is_where_its_antenna_is() -> None:
    lab = lab_with([{"name": "ear", "role": "observer"}], radio={"ear": {"receive_gain_db": 6.0}}, gain_db=-10.0)
    with open_lab(lab, 1) as opened:
        opened.radios["client"].transmit(np.full(100, 0.5, np.complex64), 50)
        near, far = (opened.radios[name].receive(100, 50).samples for name in ("ear", "ps"))
        assert np.abs(near) == pytest.approx(np.abs(far) * 10 ** (6 / 20), rel=1e-5)
        medium = medium_in(opened)
        assert np.abs(medium.taps("client", "ear")) == pytest.approx(10 ** (-4 / 20))


def test_an_observer_that_does_not_listen_is_refused() -> None:
    with pytest.raises(LabFileError, match="the observer 'ear' has receives = false"):
        lab_with([{"name": "ear", "role": "observer", "receives": False}])
