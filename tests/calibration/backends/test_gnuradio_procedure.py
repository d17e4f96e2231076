"""The calibration of flowgraphs shows what their lab file says: the noise is GNU Radio's, the measurement ours."""

from dataclasses import replace

from hardware.air.settings import medium_of
from hardware.gnuradio.settings import gnuradio_of
from hardware.lab.file import find_lab
from tests.calibration.backends.link_checks import checked_calibration
from tests.gnuradio_needed import needs_gnuradio


@needs_gnuradio
def test_calibration_over_flowgraphs() -> None:
    shipped = find_lab("gnuradio")
    # Without an address that another lab may have at the same time.
    unmonitored = gnuradio_of(shipped).model_copy(update={"monitor": ""})
    lab = replace(shipped, sections={**shipped.sections, "gnuradio": unmonitored})
    checked_calibration(lab, medium_of(lab).noise_var_complex / 2)
