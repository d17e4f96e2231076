"""Calibrate an open lab: silence first, then each transmitter alone, everybody else parked.

    silence      everybody parked                  noise and its diagnostics
    soundings    one transmitter, as the lab says  gain, delay, frequency offset, timing
    scale        the same frame, digitally weaker  linearity of the converters and the amplifier
    gain steps   the same frame, analogue weaker   linearity of the attenuator: only downwards from the lab's gain

Silence comes first, so that a receiver nobody can measure with is found before anything is transmitted. Parked
transmitters leak the least, and the least noise is what privacy may count on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics import diagnose_silence
from calibration.errors import MeasurementError
from calibration.linearity import LinearityMeasurement, measure_attenuator, measure_linearity
from calibration.links import LinkMeasurement, measure_link, measure_sounding, residual_phase
from calibration.noise import noise_of
from calibration.record import DEFAULT_LIFETIME, CalibrationRecord, check_fits, new_record
from calibration.silence import MIN_BLOCKS, RECOMMENDED_BLOCKS, Silence, observe_silence
from calibration.timing import TimingMeasurement, measure_timing
from hardware.lab.model import Lab, LabRadio, Role
from hardware.lab.opened import OpenLab
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError
from hardware.radio.settings import RadioSettings
from phy.estimation import delay_estimate
from phy.frame import SoundingFrame, sounding_cells, sounding_samples, symbol_turns
from phy.impairments import rotate
from phy.modem import demodulate
from phy.numerology import Numerology
from phy.preamble import pilot_cells
from phy.units import db_to_amplitude_ratio, db_to_power_ratio

TRANSMITTING = (Role.CLIENT, Role.JAMMER)
"""Roles of radios whose links are measured; an observer only listens."""
SCALE, ATTENUATOR = "digital scale", "attenuator"
"""What linearity is measured of."""
SENT_POINTS = np.array([1, 1j, -1, -1j], dtype=np.complex64)
"""Where the points of a sounding would lie without noise."""
OnStep = Callable[[int, int, str], None]
"""Called before each step with (steps done, steps in all, what is done now)."""
_STEPS_PER_TRANSMITTER = 3
_PLAIN_SNR_DB = 10.0


@dataclass(frozen=True)
class Plan:
    """How long and how often things are measured.

    numerology: its sample rate gives way to the one that the receiver reads back. soundings: of each transmitter, at
    full scale. repeats: soundings at each scale and gain, more where they arrive weaker than 10 dB above the noise.
    scales_db: digital amplitudes below full scale. gain_steps: how many steps of gain_step_db (or of what the radio
    can, where that is coarser) to go down. least_snr_db: scales and gains that would arrive weaker are left out.
    search_samples: how far from the sample commanded a frame is looked for. turnaround_samples: from a command to its
    first sample.
    """

    numerology: Numerology = field(default_factory=Numerology)
    silence_samples: int = RECOMMENDED_BLOCKS * 256
    symbols: int = 32
    soundings: int = 8
    repeats: int = 4
    scales_db: tuple[float, ...] = (0.0, -3.0, -6.0, -9.0, -12.0, -15.0, -18.0, -21.0, -24.0)
    gain_steps: int = 8
    gain_step_db: float = 0.25
    least_snr_db: float = 3.0
    search_samples: int = 2048
    turnaround_samples: int = 16384
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Refuse plans that measure nothing, or that would send beyond full scale or above the lab's gain."""
        least = MIN_BLOCKS * self.numerology.fft_size
        if self.silence_samples < least:
            raise MeasurementError(
                f"a silence of {self.silence_samples} samples is too short: expected at least {least}, that is "
                f"{MIN_BLOCKS} blocks of {self.numerology.fft_size}; {RECOMMENDED_BLOCKS} blocks show a drift of 5 %"
            )
        for name, lowest in (("symbols", 2), ("soundings", 4), ("repeats", 1), ("gain_steps", 2)):
            if getattr(self, name) < lowest:
                raise MeasurementError(f"{name} is {getattr(self, name)}: expected {lowest} or more")
        if len(set(self.scales_db)) < 3 or not all(-60.0 <= scale <= 0.0 for scale in self.scales_db):
            raise MeasurementError(f"scales_db are {self.scales_db}: expected 3 or more from -60 to 0 dB")
        if not 0.0 < self.gain_step_db <= 6.0:
            raise MeasurementError(f"gain_step_db is {self.gain_step_db}: expected above 0 and at most 6")
        if not 1 <= self.search_samples < self.turnaround_samples:
            raise MeasurementError(
                f"search_samples is {self.search_samples}: expected 1 to less than the turn-around of "
                f"{self.turnaround_samples} samples"
            )

    @property
    def frame(self) -> SoundingFrame:
        """What transmitters send."""
        return SoundingFrame(self.numerology, self.symbols)


@dataclass(frozen=True, eq=False)
class SoundingView:
    """A sounding as a person wants to see it.

    points: complex64 (symbols, used), `SENT_POINTS` and the errors of the cells, gain, frequency offset and pilots
    undone. Errors are relative to the rms over all cells, so that faded subcarriers do not cover the others; noise has
    point_std_real per real component. phases_rad: (symbols,) common phase that each symbol still has, phase_std_rad:
    what noise alone would scatter it by.
    """

    points: NDArray[np.complex64]
    point_std_real: float
    phases_rad: NDArray[np.float64]
    phase_std_rad: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """A record, and what pictures are made of. unmeasured: reason by `linearity_key`, where there is no linearity."""

    record: CalibrationRecord
    silence: Silence
    views: dict[str, SoundingView]
    unmeasured: dict[str, str]


def linearity_key(transmitter: str, kind: str) -> str:
    """Name of a linearity in a record. Names of radios have no slash."""
    return f"{transmitter}/{kind}"


def receiver_name(lab: Lab) -> str:
    """What a record calls its receiver: a radio of another lab, or reached through another backend, is another one."""
    return f"{lab.ps.name} of {lab.name} ({lab.backend.name})"


def calibrate(
    lab: OpenLab,
    created: datetime,
    plan: Plan | None = None,
    lifetime: timedelta = DEFAULT_LIFETIME,
    on_step: OnStep | None = None,
) -> Calibration:
    """Measure noise and all links of an open lab. created: now, with a zone. Leaves every radio parked.

    Raises `CaptureError` for captures that nothing can be measured of, before anything is transmitted where it is the
    silence; `MeasurementError` for a transmitter that is not heard; whatever the radios raise.
    """
    plan = plan or Plan()
    transmitters = [radio for radio in lab.lab.radios if radio.role in TRANSMITTING]
    steps = _Steps(1 + _STEPS_PER_TRANSMITTER * len(transmitters), on_step)
    steps.begin(f"silence of {plan.silence_samples} samples")
    for radio in lab.radios.values():
        radio.park()
    capture = lab.ps.receive(plan.silence_samples, lab.start_sample(plan.turnaround_samples))
    settings = capture.checked(plan.silence_samples).settings
    plan = replace(plan, numerology=_at_rate(plan.numerology, settings))
    silence = observe_silence(capture.samples, plan.numerology)
    noise, diagnostics = noise_of(silence, plan.confidence), diagnose_silence(silence)
    measured = [_Turn(lab, radio, plan).measure(steps) for radio in transmitters]
    record = new_record(
        receiver=receiver_name(lab.lab),
        settings=settings,
        numerology=plan.numerology,
        noise=noise,
        diagnostics=diagnostics,
        created=created,
        lifetime=lifetime,
        links=[one.link for one in measured],
        transmitter_settings={one.link.transmitter: one.settings for one in measured},
        linearity={
            linearity_key(one.link.transmitter, kind): linearity
            for one in measured
            for kind, linearity in one.linearity.items()
        },
        timing=[one.timing for one in measured],
    )
    views = {one.link.transmitter: one.view for one in measured}
    unmeasured = {
        linearity_key(one.link.transmitter, kind): reason for one in measured for kind, reason in one.unmeasured.items()
    }
    steps.begin("done")
    return Calibration(record, silence, views, unmeasured)


def check_lab(record: CalibrationRecord, lab: OpenLab, now: datetime, numerology: Numerology | None = None) -> None:
    """Raise what `check_fits` raises unless `record` fits the open lab's radios as they read back. Nothing is sent."""
    settings = lab.ps.settings
    check_fits(
        record,
        settings,
        _at_rate(numerology or Numerology(), settings),
        now,
        receiver=receiver_name(lab.lab),
        transmitter_settings={
            radio.name: lab.radios[radio.name].settings for radio in lab.lab.radios if radio.role in TRANSMITTING
        },
    )


def _at_rate(numerology: Numerology, settings: RadioSettings) -> Numerology:
    return replace(numerology, sample_rate_hz=settings.sample_rate_hz)


@dataclass
class _Steps:
    total: int
    on_step: OnStep | None
    begun: int = 0

    def begin(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(self.begun, self.total, what)
        self.begun += 1


@dataclass(frozen=True, eq=False)
class _Sounding:
    """samples: of the slot, `expected_start` being where the frame begins without delay; start_sample: commanded."""

    samples: NDArray[np.complex64]
    expected_start: int
    start_sample: int
    link: LinkMeasurement


@dataclass(frozen=True, eq=False)
class _Measured:
    settings: RadioSettings
    link: LinkMeasurement
    timing: TimingMeasurement
    view: SoundingView
    linearity: dict[str, LinearityMeasurement]
    unmeasured: dict[str, str]


class _Turn:
    """One transmitter's turn: it alone is configured, and it is parked again however the turn ends."""

    def __init__(self, lab: OpenLab, station: LabRadio, plan: Plan) -> None:
        self._lab = lab
        self._station = station
        self._plan = plan
        self._radio: Radio = lab.radios[station.name]
        self._samples = sounding_samples(plan.frame)

    def measure(self, steps: _Steps) -> _Measured:
        name, plan = self._station.name, self._plan
        try:
            steps.begin(f"{name}: {plan.soundings} soundings")
            settings = self._radio.configure(self._station.settings)
            self._lab.ready()
            soundings = [self._sound() for _ in range(plan.soundings)]
            links = [sounding.link for sounding in soundings]
            delays = relative_delays(links, plan.numerology)
            commanded = np.array([sounding.start_sample for sounding in soundings])
            timing = measure_timing(commanded, commanded + delays, name, plan.confidence)
            link = repeatable(links, delays, timing)
            linearity: dict[str, LinearityMeasurement] = {}
            unmeasured: dict[str, str] = {}
            for kind, measure in ((SCALE, self._scale), (ATTENUATOR, self._attenuator)):
                steps.begin(f"{name}: {kind}")
                found = measure(link.snr_db, settings)
                if isinstance(found, str):
                    unmeasured[kind] = found
                else:
                    linearity[kind] = found
        finally:
            self._radio.park()
        view = _view(soundings[-1], plan.frame)
        return _Measured(settings, link, timing, view, linearity, unmeasured)

    def _sound(self, scale: float = 1.0) -> _Sounding:
        plan, name = self._plan, self._station.name
        start = self._lab.start_sample(plan.turnaround_samples)
        self._radio.transmit(np.asarray(self._samples * np.float32(scale)), start)
        count = self._samples.size + 2 * plan.search_samples
        capture = self._lab.ps.receive(count, start - plan.search_samples)
        try:
            capture.checked(count)
        except CaptureError as error:
            raise CaptureError(f"while '{name}' was sounding: {error}") from error
        link = measure_sounding(capture.samples, plan.frame, name, plan.search_samples)
        return _Sounding(capture.samples, plan.search_samples, start, link)

    def _repeat(self, snr_db: float, scale: float = 1.0) -> list[LinkMeasurement]:
        """Soundings that arrive at `snr_db`; the weak ones as often as it takes to know them as well as the others."""
        more = max(1.0, db_to_power_ratio(_PLAIN_SNR_DB - snr_db))
        return [self._sound(scale).link for _ in range(math.ceil(self._plan.repeats * more))]

    def _scale(self, snr_db: float, settings: RadioSettings) -> LinearityMeasurement | str:
        del settings
        scales_db = self._strong_enough(self._plan.scales_db, snr_db)
        if len(scales_db) < 3:
            return self._too_weak(snr_db)
        scales = np.array([db_to_amplitude_ratio(scale_db) for scale_db in scales_db])
        soundings = [
            self._repeat(snr_db + scale_db, float(scale)) for scale_db, scale in zip(scales_db, scales, strict=True)
        ]
        return measure_linearity(scales, *_levels(soundings), confidence=self._plan.confidence)

    def _attenuator(self, snr_db: float, settings: RadioSettings) -> LinearityMeasurement | str:
        """From the lab's gain downwards: never above it, whatever the limits would allow."""
        wanted = self._station.settings
        capabilities = self._radio.capabilities
        radio_step_db = capabilities.tx_gain_step_db
        step_db = radio_step_db * max(1, math.ceil(self._plan.gain_step_db / radio_step_db - 1e-9))
        drops_db = [step_db * number for number in range(self._plan.gain_steps + 1)]
        drops_db = [drop_db for drop_db in drops_db if wanted.tx_gain_db - drop_db >= capabilities.tx_gain_db[0]]
        if len(drops_db) < 3:
            return f"{settings.tx_gain_db:g} dB is at the lowest gain of the radio: there is nothing to step down to"
        drops_db = [-drop_db for drop_db in self._strong_enough([-drop_db for drop_db in drops_db], snr_db)]
        if len(drops_db) < 3:
            return self._too_weak(snr_db)
        attenuations_db, links = [], []
        for drop_db in drops_db:
            read_back = self._radio.configure(replace(wanted, tx_gain_db=wanted.tx_gain_db - drop_db))
            attenuations_db.append(settings.tx_gain_db - read_back.tx_gain_db)
            links.append(self._repeat(snr_db - drop_db))
        return measure_attenuator(np.array(attenuations_db), *_levels(links), confidence=self._plan.confidence)

    def _strong_enough(self, levels_db: Sequence[float], snr_db: float) -> list[float]:
        return [level_db for level_db in levels_db if snr_db + level_db >= self._plan.least_snr_db]

    def _too_weak(self, snr_db: float) -> str:
        return (
            f"it arrives {snr_db:.1f} dB above the noise, and fewer than three levels of it at "
            f"{self._plan.least_snr_db:g} dB or more"
        )


def _levels(links: Sequence[Sequence[LinkMeasurement]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean amplitudes (L,) and their standard uncertainties (L,)."""
    amplitudes = np.array([np.mean([abs(link.gain) for link in row]) for row in links])
    stds = np.array([np.sqrt(np.mean([link.gain_std**2 for link in row]) / len(row)) for row in links])
    return amplitudes, stds


def relative_delays(links: Sequence[LinkMeasurement], numerology: Numerology) -> NDArray[np.float64]:
    """Delays (R,) of repeated soundings over one channel, all of the path that was the strongest in the last.

    The phase slope between the channels of two soundings is their difference in delay, whatever the channel. The
    strongest path is not: of two that are about as strong, noise chooses now one and now the other.
    """
    last = links[-1]
    reference = np.asarray(last.gain_per_subcarrier)
    delays = []
    for link in links:
        gains = np.asarray(link.gain_per_subcarrier)
        slope = delay_estimate((gains * reference.conj()).astype(np.complex64), numerology).delay_samples
        delays.append(last.delay_samples + _window(link, numerology) - _window(last, numerology) + float(slope))
    return np.array(delays)


def _window(link: LinkMeasurement, numerology: Numerology) -> int:
    """The whole sample that the phases of the link's gains refer to: its delay without what their slope shows."""
    gains = np.asarray(link.gain_per_subcarrier).astype(np.complex64)
    return round(link.delay_samples - float(delay_estimate(gains, numerology).delay_samples))


def repeatable(
    links: Sequence[LinkMeasurement], delays: NDArray[np.float64], timing: TimingMeasurement
) -> LinkMeasurement:
    """The last of several soundings of one transmitter, with uncertainties that its repetitions bear out.

    delays: `relative_delays`. Each standard uncertainty is the largest of the one that the noise within the sounding
    explains and of the scatter from sounding to sounding: of |gain|, of the frequency offset, of the delay about its
    drift and of the choice of the strongest path. A channel or an oscillator that wanders shows only in the latter.
    """
    last = links[-1]
    amplitudes = np.abs(np.array([link.gain_per_subcarrier for link in links]))
    choices = np.array([link.delay_samples for link in links]) - delays
    return replace(
        last,
        gain_std=max(last.gain_std, _scatter([abs(link.gain) for link in links])),
        gain_per_subcarrier_std=max(
            last.gain_per_subcarrier_std, math.sqrt(float(amplitudes.var(axis=0, ddof=1).mean()))
        ),
        delay_samples_std=max(
            last.delay_samples_std, timing.jitter_samples, math.sqrt(float(np.sum(choices**2)) / (len(links) - 1))
        ),
        cfo_hz_std=max(last.cfo_hz_std, _scatter([link.cfo_hz for link in links])),
    )


def _scatter(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def _view(sounding: _Sounding, frame: SoundingFrame) -> SoundingView:
    numerology, link = frame.numerology, sounding.link
    length = frame.symbols * numerology.symbol_samples
    begin = sounding.expected_start + round(link.delay_samples) + frame.sounding_slice.start
    begin = min(begin, sounding.samples.size - length)
    steady = rotate(sounding.samples[begin : begin + length], -link.cfo_hz / numerology.sample_rate_hz, 0)
    cells = demodulate(steady, numerology, numerology.cp_samples // 2)
    pilots = sounding_cells(numerology, frame.symbols)
    # Once more on what was corrected: the gains then have the slope and the phase of these cells.
    left = measure_link(cells, pilots, numerology, link.transmitter)
    expected = np.asarray(left.gain_per_subcarrier) * pilot_cells(numerology)
    energies = np.abs(expected) ** 2
    rms = math.sqrt(float(energies.mean()))
    sent = SENT_POINTS[np.arange(frame.symbols) % 4][:, None]
    # Symbols are turned by other angles than quarters; a picture has four points.
    quartered = cells * (symbol_turns(frame.symbols).conj()[:, None] * sent)
    errors = (quartered - expected * sent) * np.exp(-1j * np.angle(expected)) / rms
    return SoundingView(
        points=(sent + errors).astype(np.complex64),
        point_std_real=math.sqrt(left.residual_noise_var_real) / rms,
        phases_rad=residual_phase(cells, pilots, numerology, left),
        phase_std_rad=math.sqrt(left.residual_noise_var_real / float(energies.sum())),
    )
