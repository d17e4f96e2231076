"""The calibration of flowgraphs shows what their lab file says: the noise is GNU Radio's, the measurement ours."""

from dataclasses import replace

from hardware.lab import find_lab
from tests.calibration.link_checks import checked_calibration
from tests.gnuradio_needed import needs_gnuradio


@needs_gnuradio
def test_calibration_over_flowgraphs() -> None:
    shipped = find_lab("gnuradio")
    # Without an address that another lab may have at the same time.
    lab = replace(shipped, gnuradio=shipped.gnuradio.model_copy(update={"monitor": ""}))
    checked_calibration(lab, lab.medium.noise_var_complex / 2)
