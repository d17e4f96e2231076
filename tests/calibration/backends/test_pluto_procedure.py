"""The calibration of emulated Plutos shows what their lab file says."""

import numpy as np

from hardware.alignment import ARRIVAL_SAMPLES
from hardware.lab import find_lab
from hardware.loopback import build_medium
from tests.calibration.link_checks import checked_calibration


def test_calibration_over_plutos() -> None:
    lab = find_lab("pluto-virtual")
    # Half of E|z|^2, and the converter's steps of 1/2047.
    record = checked_calibration(lab, lab.medium.noise_var_complex / 2 + (1 / 2047) ** 2 / 12)
    medium = build_medium(lab, 1)
    for name, link in record.links.items():
        # Alignment takes the whole samples of a delay away, and leaves the rest.
        residual = link.delay_samples - ARRIVAL_SAMPLES
        assert abs(np.exp(2j * np.pi * (residual - medium.link(name, "ps").delay_samples)) - 1) < 0.05
