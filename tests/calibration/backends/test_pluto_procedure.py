"""The calibration of emulated Plutos shows what their lab file says."""

import numpy as np

from hardware.air.build import build_medium
from hardware.air.settings import medium_of
from hardware.counted.arrival import ARRIVAL_SAMPLES
from hardware.lab.file import find_lab
from tests.calibration.backends.link_checks import checked_calibration


def test_calibration_over_plutos() -> None:
    lab = find_lab("pluto-virtual")
    # Half of E|z|^2, and the converter's steps of 1/2047.
    record = checked_calibration(lab, medium_of(lab).noise_var_complex / 2 + (1 / 2047) ** 2 / 12)
    medium = build_medium(lab, 1)
    for name, link in record.links.items():
        # Alignment takes the whole samples of a delay away, and leaves the rest.
        residual = link.delay_samples - ARRIVAL_SAMPLES
        assert abs(np.exp(2j * np.pi * (residual - medium.link(name, "ps").delay_samples)) - 1) < 0.05
