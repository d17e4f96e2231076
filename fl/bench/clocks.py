"""Bursts of radios with crystals of their own in the simulated air, against the same on a shared clock."""

import numpy as np

from fl.bench.measure import Measurement, compare
from hardware.air.front_end import FrontEnd
from hardware.air.medium import Medium
from hardware.lab.clock import ClockMode
from hardware.radio.settings import RadioSettings
from phy.fading import circular_noise

SENDERS, SAMPLES, PPM = 50, 130_000, 20.0
_RATE_HZ, _CENTER_HZ = 5e6, 2.45e9


class ClockWork:
    """One receiver, and senders whose crystals are evenly spread over +-PPM or all alike."""

    def __init__(self, clock_mode: ClockMode, senders: int = SENDERS, samples: int = SAMPLES) -> None:
        self.medium = Medium(_RATE_HZ, 1, clock_mode=clock_mode)
        settings = RadioSettings(
            sample_rate_hz=_RATE_HZ,
            tx_center_hz=_CENTER_HZ,
            rx_center_hz=_CENTER_HZ,
            bandwidth_hz=4e6,
            tx_gain_db=0.0,
            rx_gain_db=0.0,
        )
        self.medium.add_radio("ps")
        self.medium.tune("ps", settings)
        self.senders = tuple(f"client-{number}" for number in range(senders))
        for name, ppm in zip(self.senders, np.linspace(-PPM, PPM, senders), strict=True):
            self.medium.add_radio(name, FrontEnd(clock_ppm=float(ppm)), receives=False)
            self.medium.tune(name, settings)
        self.burst, self.start_sample = circular_noise(samples, 0.01, np.random.default_rng(1)), 1000

    def send(self) -> None:
        """A burst of each sender, all at once."""
        for name in self.senders:
            self.medium.send(name, self.burst, self.start_sample)

    def forget(self) -> None:
        """Receive what was sent, and let the next bursts begin after it."""
        self.medium.listen("ps", self.burst.size, self.start_sample)
        self.start_sample += 2 * self.burst.size
        # Fast crystals are ahead of the receiver's.
        self.medium.advance("ps", self.start_sample - self.burst.size // 2)


def clocks(repeats: int) -> Measurement:
    """Free-running crystals against a shared one."""
    free, shared = ClockWork(ClockMode.FREE_RUNNING), ClockWork(ClockMode.SHARED)

    def before() -> None:
        free.forget()
        shared.forget()

    return compare(
        free.send,
        shared.send,
        # A few milliseconds each: more pairs make the median steady.
        4 * repeats,
        before=before,
        one_thread=True,
        workload=f"{SENDERS} bursts of {SAMPLES:,} samples into the air, crystals within +-{PPM:g} ppm: resampling, "
        "frequency offset, sum; processor time",
        reference="the same on a shared clock: the sum",
    )
