"""When a burst that was to leave at sample t arrives: fixed offset, jitter, and how far the clocks drift apart."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from calibration.errors import MeasurementError
from calibration.schema import measurement
from calibration.statistics import check_probability, chi_square_quantile


@measurement
class TimingMeasurement:
    """Arrival minus the sample commanded, over repeated soundings of one transmitter.

    offset_samples: at the mean of the commanded times, with its standard uncertainty. clock_offset_ppm: how much longer
    the transmitter's samples are than the receiver's, with its standard uncertainty. jitter_samples: standard deviation
    about the straight line, with an interval at `confidence`. largest_error_samples: worst arrival against the line.
    """

    transmitter: str
    soundings: int
    offset_samples: float
    offset_samples_std: float
    clock_offset_ppm: float
    clock_offset_ppm_std: float
    jitter_samples: float
    jitter_ci_samples: tuple[float, float]
    largest_error_samples: float
    confidence: float

    def __post_init__(self) -> None:
        """Refuse intervals that do not hold their value."""
        check_probability("confidence", self.confidence)
        if not 0.0 <= self.jitter_ci_samples[0] <= self.jitter_samples <= self.jitter_ci_samples[1]:
            raise MeasurementError(f"jitter {self.jitter_samples} lies outside its interval {self.jitter_ci_samples}")


def measure_timing(
    commanded_samples: NDArray[np.int64],
    arrival_samples: NDArray[np.float64],
    transmitter: str = "",
    confidence: float = 0.95,
) -> TimingMeasurement:
    """Fit arrival - commanded = offset + ppm * commanded to R >= 4 soundings: both (R,), in samples of the receiver.

    Least squares; uncertainties from the scatter, by Student's t turned into a standard deviation for the few
    soundings of a lab; the jitter's interval by chi^2(R - 2).
    """
    check_probability("confidence", confidence)
    commanded, arrivals = np.asarray(commanded_samples), np.asarray(arrival_samples, dtype=np.float64)
    count = arrivals.size
    if commanded.shape != arrivals.shape or arrivals.ndim != 1 or count < 4 or not np.all(np.isfinite(arrivals)):
        raise MeasurementError(
            f"{commanded.shape} commanded and {arrivals.shape} arrival samples: expected as many of both, 4 or more"
        )
    # Differences first: a sample counter is large and its fraction would be lost.
    late = arrivals - commanded
    times = (commanded - commanded[0]).astype(np.float64)
    times -= times.mean()
    moment = float(np.sum(times**2))
    if moment == 0.0:
        raise MeasurementError("all soundings were commanded for the same sample: expected different ones")
    slope = float(np.sum(times * late)) / moment
    offset = float(late.mean())
    errors = late - offset - slope * times
    degrees = count - 2
    jitter = math.sqrt(float(np.sum(errors**2)) / degrees)
    tail = (1.0 - confidence) / 2.0
    low, high = (
        jitter * math.sqrt(degrees / chi_square_quantile(probability, degrees)) for probability in (1.0 - tail, tail)
    )
    # A standard deviation whose normal 68 % interval is Student's.
    widen = float(special.stdtrit(degrees, 0.8413447460685429))
    return TimingMeasurement(
        transmitter=transmitter,
        soundings=count,
        offset_samples=offset,
        offset_samples_std=widen * jitter / math.sqrt(count),
        clock_offset_ppm=1e6 * slope,
        clock_offset_ppm_std=1e6 * widen * jitter / math.sqrt(moment),
        jitter_samples=jitter,
        jitter_ci_samples=(low, high),
        largest_error_samples=float(np.max(np.abs(errors))),
        confidence=confidence,
    )
