"""Plutos keep the contract: unmodified libiio against virtual ones whose time stands still while nobody receives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardware.lab.model import Lab
from tests.hardware.plutos import lab_of, lose_received, lose_sent, pluto, plutos
from tests.hardware.radio_contract import Pair, RadioContract


@contextmanager
def pair_of(lab: Lab, amplitude_tolerance: float) -> Iterator[Pair]:
    with plutos(lab) as opened:
        sender, receiver = pluto(opened, "sender"), pluto(opened, "receiver")
        yield Pair(
            sender,
            receiver,
            lab.ps.settings,
            max_delay_samples=20,
            amplitude_tolerance=amplitude_tolerance,
            provoke_overflow=lambda: lose_received(receiver),
            provoke_underflow=lambda: lose_sent(sender, receiver),
            ready=opened.ready,
        )


class TestPluto(RadioContract):
    @pytest.fixture
    def pair(self) -> Iterator[Pair]:
        with pair_of(lab_of(), 1e-3) as pair:
            yield pair


class TestPlutoInHarshAir(RadioContract):
    @pytest.fixture
    def pair(self) -> Iterator[Pair]:
        harsh: dict[str, Any] = {
            "delay_samples": 13.37,
            "taps": [[0, 0.0], [3, -8.0]],
            "iq_image_db": -35.0,
            "dc_offset_dbfs": -50.0,
        }
        with pair_of(lab_of(**harsh), 5e-3) as pair:
            yield pair
