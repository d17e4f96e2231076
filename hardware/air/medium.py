"""The simulated air: what each receiver gets when several radios transmit.

A burst goes through its links as soon as it is transmitted, and is added to what each receiver will hear; nothing is
kept of it. Time is therefore linear in samples times links, and memory does not depend on the number of links. On a
flat link with a whole delay the cost is one complex multiplication and addition per sample.

    y[r] = z[r] + exp(-j theta[r]) sum_links exp(j 2 pi f r) sum_l h_l x(r - D - l)

with x after the sender's front end, h and D the link's taps and delay, f the difference of the carriers in cycles per
sample, theta and z the receiver's phase noise and thermal noise; then come the receiver's gain, mixer and converter.
With free-running clocks x is also resampled. The clock is virtual: it moves when somebody receives, and nobody sleeps.

Radios may have rates of their own (`mixed_rates`). A sender and a receiver whose rates or carriers then differ share a
part of their bands: that part is converted to the receiver's rate, the rest is filtered out, and the path is longer by
what the filter looks ahead (`phy.resampling`). So are filters of a radio that are narrower than its rate (`analogue`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hardware.air.ahead import Ahead
from hardware.air.analogue import AnalogueFilters
from hardware.air.front_end import FrontEnd
from hardware.air.link import Link
from hardware.air.mixed_rates import LEAST_OVERLAP, Path, path_between
from hardware.air.noise import Oscillator, Purpose, Randomness, ThermalNoise
from hardware.lab.clock import ClockMode
from hardware.radio.errors import HardwareError, LateError, RxOverflowError
from hardware.radio.settings import RadioSettings
from phy.impairments import resample_clock

# Rounding of a counter that went through the clock of another radio; enough for 10^12 samples.
_COUNTER_SLACK = 1e-3


@dataclass
class _Station:
    name: str
    front_end: FrontEnd
    oscillator: Oscillator | None
    noise: ThermalNoise | None
    receives: bool
    crystal_ratio: float
    # Samples per sample of an exact clock at the medium's rate.
    clock_ratio: float
    settings: RadioSettings | None = None
    filters: AnalogueFilters | None = None
    sending_until: int = 0
    taken_until: int = 0
    ahead: Ahead = field(default_factory=Ahead)


class _Rooms:
    """Arrays by number that are used again from burst to burst: fresh memory costs more than what is done in it."""

    def __init__(self) -> None:
        self._kept: dict[int, NDArray[np.complex64]] = {}

    def take(self, number: int, count: int) -> NDArray[np.complex64]:
        """Room for `count` samples, until it is taken again."""
        kept = self._kept.get(number)
        if kept is None or kept.size < count:
            kept = self._kept[number] = np.empty(count, np.complex64)
        return kept[:count]


class Medium:
    """Radios by name and the links between them. All sample indices are those of the radio they belong to.

    link_of: of sender and receiver, where `set_link` was not called for them: asked when one is first heard by the
    other, because most pairs of a large lab never are. history_samples: how far a receiver that nobody
    reads stays behind the clock before it loses samples. mixed_rates: whether radios may have other rates than
    `sample_rate_hz`.
    """

    def __init__(
        self,
        sample_rate_hz: float,
        seed: int,
        *,
        clock_mode: ClockMode = ClockMode.SHARED,
        link_of: Callable[[str, str], Link] = lambda sender, receiver: Link(),
        history_samples: int = 1 << 22,
        mixed_rates: bool = False,
    ) -> None:
        if not (math.isfinite(sample_rate_hz) and sample_rate_hz > 0):
            raise HardwareError(f"sample_rate_hz is {sample_rate_hz}: expected a finite number above 0")
        if history_samples < 1:
            raise HardwareError(f"history_samples is {history_samples}: expected at least 1")
        self.sample_rate_hz = sample_rate_hz
        self.clock_mode = clock_mode
        self.mixed_rates = mixed_rates
        self._randomness = Randomness(seed)
        self._link_of = link_of
        self._history = history_samples
        self._links: dict[tuple[str, str], Link] = {}
        self._made: dict[tuple[str, str], Link] = {}
        self._stations: dict[str, _Station] = {}
        self._receivers: list[_Station] = []
        self._taps: dict[tuple[str, str], NDArray[np.complex128]] = {}
        self._rooms = _Rooms()
        self._block = 0
        # Samples of an exact clock since all counters were zero.
        self._time = 0.0

    def add_radio(self, name: str, front_end: FrontEnd | None = None, *, receives: bool = True) -> None:
        """Put a radio into the air. Each that `receives` hears all others, which costs time; the rest cost nothing."""
        if name in self._stations:
            raise HardwareError(f"there are two radios '{name}': names must differ")
        front_end = front_end or FrontEnd()
        std = front_end.phase_noise_rad_per_sqrt_sample
        oscillator = Oscillator(self._randomness, name, std) if std else None
        ratio = 1.0 if self.clock_mode is ClockMode.SHARED else 1.0 + front_end.clock_ppm * 1e-6
        noise = (
            ThermalNoise(self._randomness, name, front_end.noise_var_complex) if front_end.noise_var_complex else None
        )
        station = _Station(name, front_end, oscillator, noise, receives, ratio, ratio)
        self._stations[name] = station
        if receives:
            self._receivers.append(station)

    def set_link(self, sender: str, receiver: str, link: Link) -> None:
        """The path from `sender` to `receiver`, from its next burst on. A radio hears itself where it has one."""
        self._links[self._station(sender).name, self._station(receiver).name] = link
        self._taps.pop((sender, receiver), None)

    def set_filters(self, name: str, filters: AnalogueFilters) -> None:
        """What a radio's own filters let pass, from its next burst on."""
        self._station(name).filters = filters

    def set_receiving(self, name: str, receives: bool) -> None:
        """Let a radio hear from now on what is sent, or forget what it has not received and hear nothing more."""
        station = self._station(name)
        if station.receives != receives:
            station.receives = receives
            self._receivers = [station for station in self._stations.values() if station.receives]
            station.ahead.clear()
            station.ahead.kept_from = max(station.ahead.kept_from, self._counter(station))

    def front_end(self, name: str) -> FrontEnd:
        """The circuits of a radio."""
        return self._station(name).front_end

    def clock_ratio(self, name: str) -> float:
        """Samples of the radio per sample of an exact clock."""
        return self._station(name).clock_ratio

    @property
    def block(self) -> int:
        """Number of the current fading block."""
        return self._block

    def new_block(self, block: int) -> None:
        """Begin fading block `block`: all links get the taps of that block, whatever came before it."""
        if block < 0:
            raise HardwareError(f"the fading block is {block}: expected a number >= 0")
        self._block = block
        self._taps.clear()

    def taps(self, sender: str, receiver: str) -> NDArray[np.complex128]:
        """The true taps (L,) of a link in the current block, gains of the radios not included."""
        key = (self._station(sender).name, self._station(receiver).name)
        if key not in self._taps:
            rng = self._randomness.generator(Purpose.FADING, *key, self._block)
            self._taps[key] = self.link(*key).fading.taps(self._block, rng)
        return self._taps[key]

    def link(self, sender: str, receiver: str) -> Link:
        """The path from `sender` to `receiver`."""
        key = (sender, receiver)
        given = self._links.get(key)
        if given is not None:
            return given
        if key not in self._made:
            self._made[key] = self._link_of(sender, receiver)
        return self._made[key]

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether a receiver is tuned to where a sender would be heard."""
        sending, receiving = self._station(sender), self._station(receiver)
        return sending.settings is not None and self._hears(receiving, sending)

    def _hears(self, receiver: _Station, sender: _Station) -> bool:
        if receiver is sender and (sender.name, sender.name) not in self._links:
            return False
        return self._in_band(self._tuned(sender.name), receiver)

    def cfo_hz(self, sender: str, receiver: str) -> float:
        """Carrier of `sender` minus that of `receiver`, both as their crystals make them."""
        sending, receiving = self._tuned(sender), self._tuned(receiver)
        # Written so that a small offset does not drown in the digits of the carriers.
        return (sending.tx_center_hz - receiving.rx_center_hz) + (
            sending.tx_center_hz * (self._station(sender).crystal_ratio - 1.0)
            - receiving.rx_center_hz * (self._station(receiver).crystal_ratio - 1.0)
        )

    def tune(self, name: str, settings: RadioSettings) -> None:
        """Set a radio from its next burst or capture on. With another rate its count is another one."""
        station = self._station(name)
        if settings.sample_rate_hz != self.sample_rate_hz and not self.mixed_rates:
            raise HardwareError(
                f"{name} is set to {settings.sample_rate_hz:g} S/s: the simulated air runs at {self.sample_rate_hz:g}"
            )
        station.settings = settings
        ratio = station.crystal_ratio * (settings.sample_rate_hz / self.sample_rate_hz)
        if ratio != station.clock_ratio:
            station.clock_ratio = ratio
            station.ahead.clear()
            station.ahead.kept_from = station.taken_until = station.sending_until = self._counter(station)

    def settings(self, name: str) -> RadioSettings:
        """What a radio is set to."""
        return self._tuned(name)

    def now(self, name: str) -> int:
        """The earliest sample, in the radio's own count, at which a burst of it can start.

        Nobody has received anything that late yet, and the radio's previous burst has ended.
        """
        station = self._station(name)
        return max(self._counter(station), station.sending_until)

    def _counter(self, station: _Station) -> int:
        return math.ceil(self._time * station.clock_ratio - _COUNTER_SLACK)

    def send(self, name: str, samples: NDArray[np.complex64], start_sample: int) -> None:
        """Let samples (n,), complex64 and contiguous, leave the radio from `start_sample` on."""
        sender = self._station(name)
        settings = self._tuned(name)
        if start_sample < self.now(name):
            raise LateError(f"{name} cannot send at sample {start_sample}: it can from sample {self.now(name)} on")
        sender.sending_until = start_sample + samples.size
        radiated, scale = sender.front_end.send(samples, settings.tx_gain_db)
        if sender.oscillator:
            radiated = radiated * sender.oscillator.phasors(start_sample, radiated.size)
        # Receivers at the same distance and with the same clock hear the same: shifting samples is what costs time.
        shifted: dict[tuple[float, float], tuple[NDArray[np.complex64], int]] = {}
        for receiver in self._receivers:
            if self._hears(receiver, sender):
                link = self.link(name, receiver.name)
                path = self._path(sender, receiver)
                if path is not None:
                    arrived = path.taken(radiated, start_sample, link.delay_samples)
                    self._propagate(sender, receiver, *arrived, scale)
                    continue
                drift_ppm = (sender.clock_ratio - receiver.clock_ratio) / receiver.clock_ratio * 1e6
                key = (drift_ppm, link.delay_samples)
                if key not in shifted:
                    room = partial(self._rooms.take, len(shifted))
                    shifted[key] = _shift(radiated, start_sample, drift_ppm, link.delay_samples, room)
                self._propagate(sender, receiver, *shifted[key], scale)

    def _in_band(self, sending: RadioSettings, receiver: _Station) -> bool:
        if receiver.settings is None:
            return False
        offset_hz = abs(sending.tx_center_hz - receiver.settings.rx_center_hz)
        if self.mixed_rates:
            # Their bands overlap, by more than the edges of the filters between them.
            overlap_hz = (sending.sample_rate_hz + receiver.settings.sample_rate_hz) / 2 - offset_hz
            return overlap_hz > LEAST_OVERLAP * sending.sample_rate_hz
        return offset_hz <= receiver.settings.bandwidth_hz / 2

    def _path(self, sender: _Station, receiver: _Station) -> Path | None:
        """How samples get from one to the other where more than delay and drift are between them."""
        if not self.mixed_rates:
            return None
        sending, receiving = self._tuned(sender.name), self._tuned(receiver.name)
        return path_between(
            sending.sample_rate_hz,
            receiving.sample_rate_hz,
            self.cfo_hz(sender.name, receiver.name),
            sender.clock_ratio / receiver.clock_ratio,
            (sender.filters, receiver.filters),
            drifts=self.clock_mode is ClockMode.FREE_RUNNING,
        )

    def _propagate(
        self, sender: _Station, receiver: _Station, samples: NDArray[np.complex64], first: int, scale: float
    ) -> None:
        """Add samples that arrive from the receiver's sample `first` on to its pages, after rotation and fading."""
        cfo = self.cfo_hz(sender.name, receiver.name) / (self.sample_rate_hz * receiver.clock_ratio)
        for lag, tap in enumerate(self.taps(sender.name, receiver.name).tolist()):
            if tap:
                receiver.ahead.add(first + lag, samples, scale * tap, cfo)

    def listen(
        self, name: str, count: int, start_sample: int, *, move_clock: bool = True
    ) -> tuple[NDArray[np.complex64], int]:
        """What the radio hears in `count` samples from `start_sample` on, and how many of them clipped.

        Moves the clock to the end of these samples, so that nothing can be sent into them any more, unless told that
        the caller does so with `advance`.
        """
        receiver = self._station(name)
        settings = self._tuned(name)
        if not receiver.receives:
            raise HardwareError(f"{name} does not receive in this lab: set receives = true for it")
        if start_sample < receiver.taken_until:
            raise LateError(
                f"{name} cannot receive from sample {start_sample} on: samples up to {receiver.taken_until} are gone"
            )
        if start_sample < receiver.ahead.kept_from:
            raise RxOverflowError(
                f"{name} lost samples {receiver.taken_until} to {receiver.ahead.kept_from}: "
                "nobody received them in time"
            )
        heard = receiver.ahead.heard(count, start_sample)
        if receiver.oscillator:
            heard *= receiver.oscillator.phasors(start_sample, count).conj()
        if receiver.noise:
            receiver.noise.add(heard, start_sample)
        digital, clipped = receiver.front_end.receive(heard, settings.rx_gain_db)
        receiver.taken_until = receiver.ahead.kept_from = start_sample + count
        if move_clock:
            self._advance(receiver.taken_until / receiver.clock_ratio)
        return digital, clipped

    def advance(self, name: str, sample: int) -> None:
        """Move the clock to `sample` of the radio's count, as if everybody had waited for it. Never moves it back."""
        self._advance(sample / self._station(name).clock_ratio)

    def _advance(self, time: float) -> None:
        self._time = max(self._time, time)
        for station in self._receivers:
            station.ahead.kept_from = max(station.ahead.kept_from, self._counter(station) - self._history)
            station.ahead.forget()

    def _station(self, name: str) -> _Station:
        try:
            return self._stations[name]
        except KeyError:
            known = ", ".join(self._stations) or "none"
            raise HardwareError(f"there is no radio '{name}' in the air: there are {known}") from None

    def _tuned(self, name: str) -> RadioSettings:
        settings = self._station(name).settings
        if settings is None:
            raise HardwareError(f"{name} has no settings yet: configure it first")
        return settings


def _shift(
    samples: NDArray[np.complex64],
    start_sample: int,
    drift_ppm: float,
    delay_samples: float,
    room: Callable[[int], NDArray[np.complex64]],
) -> tuple[NDArray[np.complex64], int]:
    """Samples as they come out of a delay at a receiver's clock, and the receiver's index of the first of them."""
    samples, offset = resample_clock(samples, drift_ppm, start_sample, delay_samples, room)
    return samples, start_sample + offset
