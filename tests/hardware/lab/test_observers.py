"""Observers: radios that only listen, at a place of their own."""

from typing import Any

import numpy as np
import pytest

from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.file import parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab
from hardware.radio.errors import LabFileError
from phy.frame import SoundingFrame, sounding_samples
from phy.numerology import Numerology
from tests.hardware.simulated import medium_in
from tests.uhd_needed import needs_uhd


def lab_with(observers: list[dict[str, Any]], backend: str = "loopback", **medium: Any) -> Lab:
    return parse_lab(
        {
            "lab": {
                "backend": backend,
                "sample_rate_hz": 4e6,
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


@pytest.mark.parametrize(("exponent", "fall_db"), [(2.0, 20.0), (3.5, 35.0)])
def test_an_observer_is_where_it_stands(exponent: float, fall_db: float) -> None:
    """10 m from the ps and 1 m from the ear: the gain is that at 1 m, and at 10 m a decade of distance below it."""
    places = {"ps": [0.0, 0.0], "client": [6.0, 8.0], "ear": [6.0, 9.0]}
    lab = lab_with(
        [{"name": "ear", "role": "observer"}],
        radio={name: {"position_m": place} for name, place in places.items()},
        gain_db=-3.0,
        path_loss_exponent=exponent,
    )
    for found in (lab, parse_lab(lab.to_tables())):
        with open_lab(found, 1) as opened:
            medium = medium_in(opened)
            assert np.abs(medium.taps("client", "ear")) == pytest.approx(10 ** (-3 / 20))
            assert np.abs(medium.taps("client", "ps")) == pytest.approx(10 ** (-(3 + fall_db) / 20))


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"ear": [1.0, 0.0]}, "ps, client without position_m"),
        ({"ps": [0.0, 0.0], "client": [1.0, 0.0], "ear": [0.0, 0.0]}, "where 'ps' stands already"),
    ],
)
def test_places_that_say_no_distance_are_refused(places: dict[str, list[float]], message: str) -> None:
    with pytest.raises(LabFileError, match=message):
        lab_with([{"name": "ear", "role": "observer"}], radio={name: {"position_m": at} for name, at in places.items()})


def test_an_observer_that_does_not_listen_is_refused() -> None:
    with pytest.raises(LabFileError, match="the observer 'ear' has receives = false"):
        lab_with([{"name": "ear", "role": "observer", "receives": False}])


def test_what_is_given_for_one_radio_is_all_that_differs_after_writing_it_down() -> None:
    """Emulators and run folders read a lab that was written: an observer keeps the noise that it shares with all."""
    lab = lab_with(
        [{"name": "ear", "role": "observer"}], radio={"ear": {"receive_gain_db": 6.0}}, noise_var_complex=1e-5
    )
    again = parse_lab(lab.to_tables())
    for found in (lab, again):
        front_end = medium_of(found).front_end_of("ear", Randomness(1))
        assert front_end.noise_var_complex == 1e-5
    assert medium_of(again).radio["ear"].model_fields_set == {"receive_gain_db"}


@pytest.mark.parametrize("backend", ["pluto-virtual", pytest.param("usrp-virtual", marks=needs_uhd)])
def test_an_observer_of_devices_hears_the_same_samples_as_the_server(backend: str) -> None:
    """By the server's count, whatever its own is, and 6 dB louder; after a pause in which time stands still, too."""
    if backend == "pluto-virtual":
        pytest.importorskip("iio")
    lab = lab_with(
        [{"name": "ear", "role": "observer"}],
        backend,
        radio={"ear": {"receive_gain_db": 6.0}},
        gain_db=-10.0,
        noise_var_complex=1e-6,
    )
    burst = sounding_samples(SoundingFrame(Numerology(sample_rate_hz=4e6), 4))
    with open_lab(lab, 1) as opened:
        opened.ready()
        for _ in range(2):
            start = opened.start_sample(1000)
            opened.radios["client"].transmit(burst, start)
            count = burst.size + 512
            far, near = (opened.radios[name].receive(count, start).samples for name in ("ps", "ear"))
            assert np.abs(np.vdot(near, far)) > 0.999 * np.linalg.norm(near) * np.linalg.norm(far)
            assert np.linalg.norm(near) == pytest.approx(10 ** (6 / 20) * np.linalg.norm(far), rel=0.02)
        assert opened.ready() == ()


def test_flowgraphs_have_no_observer_and_say_so() -> None:
    lab = lab_with([{"name": "ear", "role": "observer"}], "gnuradio", noise_var_complex=1e-6)
    with pytest.raises(LabFileError, match="the drawing 'air' has one receiver"), open_lab(lab, 1):
        pass
