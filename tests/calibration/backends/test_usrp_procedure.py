"""The calibration of virtual USRPs shows what their lab file says."""

from datetime import UTC, datetime

import pytest

from calibration.procedure import calibrate
from hardware.air.build import build_medium
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from tests.calibration.backends.link_checks import PLAN
from tests.uhd_needed import needs_uhd


@needs_uhd
def test_calibration_over_usrps() -> None:
    lab = find_lab("usrp-virtual")
    with open_lab(lab, 1) as opened:
        record = calibrate(opened, datetime(2025, 1, 1, tzinfo=UTC), PLAN).record
    # Half of E|z|^2, and the converter's steps of 1/8191.
    noise_var_real = medium_of(lab).noise_var_complex / 2 + (1 / 8191) ** 2 / 12
    low, high = record.noise.ci
    # Two and a half intervals of 95 % are five standard deviations.
    assert record.noise.noise_var_real == pytest.approx(noise_var_real, abs=2.5 * (high - low) / 2)
    assert high - low < 0.03 * noise_var_real
    medium = build_medium(lab, 1)
    delays = {name: link.delay_samples - medium.link(name, "ps").delay_samples for name, link in record.links.items()}
    for name, link in record.links.items():
        (tap,) = medium.taps(name, "ps")
        assert abs(link.gain) == pytest.approx(abs(tap), rel=4e-3)
        assert abs(link.cfo_hz) < 1.0
    # Ticks are the same for all: what is left beside the links' own delays is one constant of the boxes.
    assert max(delays.values()) - min(delays.values()) < 0.05
