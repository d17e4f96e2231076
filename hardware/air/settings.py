"""The [medium] section of a lab file: what the simulated air and the simulated radios are like.

Every backend with a simulated air brings it.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_serializer, model_validator

from hardware.air.front_end import FrontEnd
from hardware.air.link import Link, RayleighFading, StaticFading, power_profile
from hardware.air.noise import Purpose, Randomness
from hardware.foundation.sections import Finite, NotNegative, Pair, Section, as_tuple, choice, nearest
from hardware.lab.model import Lab
from hardware.lab.section import BackendSection
from hardware.radio.errors import HardwareError
from phy.errors import AirdpError
from phy.units import db_to_amplitude_ratio

SECTION = "medium"
"""Its name."""
Tap = Annotated[tuple[int, float], BeforeValidator(as_tuple)]


class FadingKind(StrEnum):
    """`static`: the same gain in every uplink; `rayleigh`: drawn anew for every uplink."""

    STATIC = "static"
    RAYLEIGH = "rayleigh"


class RadioMedium(Section):
    """What may differ from radio to radio; a link has the values of its sender. Everything is ideal by default.

    See `FrontEnd` for the meaning of the keys that it has too.
    """

    gain_db: Finite = 0.0
    """Mean power gain of the sender's links, over all taps."""
    receive_gain_db: Finite = 0.0
    """What links into this radio have besides: its antenna, for an observer with a better one than the ps."""
    position_m: Pair | None = None
    """[x, y] in metres, for all radios of a lab or for none: gains of links are then those at 1 m, and fall with the
    distance as `path_loss_exponent` says. Delays are what their keys say."""
    leakage_db: Finite | None = None
    """Power gain from the radio's transmitter into its own receiver: poor isolation, or a cable with an attenuator; not
    given: a radio does not hear itself."""
    phase_rad: Finite = 0.0
    """Phase of a static link; Rayleigh links have random ones."""
    fading: Annotated[FadingKind, choice(FadingKind)] = FadingKind.STATIC
    taps: Annotated[tuple[Tap, ...], BeforeValidator(as_tuple)] = ((0, 0.0),)
    """[delay in samples, power in dB] of each path; powers are relative to each other."""
    delay_samples: NotNegative | None = None
    """Not given: drawn between 0 and max_delay_samples."""
    clock_ppm: Finite | None = None
    """Not given: drawn within +-max_clock_ppm. On a shared clock it has no effect."""
    phase_noise_rad_per_sqrt_sample: NotNegative = 0.0
    """Standard deviation of the oscillator's phase step per sample."""
    iq_image_db: Finite | None = None
    """Power of the mirror image that I/Q imbalance makes, in both directions; not given: none."""
    dc_offset_dbfs: Finite | None = None
    """Carrier leakage relative to full scale, in both directions; not given: none."""
    pa_saturation: Finite | None = None
    """Largest amplitude that the amplifier gives, 1.0 being full scale at 0 dB; not given: a linear amplifier."""
    pa_smoothness: Finite = 2.0
    """How sharply the amplifier goes into saturation (p of Rapp's model); larger is sharper."""
    dac_bits: int | None = None
    """Resolution of the transmitter's converter; not given: an ideal one."""
    adc_bits: int | None = None
    """Resolution of the receiver's converter; not given: an ideal one, without a limit."""
    noise_var_complex: NotNegative = 0.0
    """Thermal noise E|z|^2 per sample at the receiver's input: twice the variance of a real coordinate."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        """Refuse what the parts themselves would refuse."""
        try:
            self.front_end(0.0)
            self.link(0.0)
        except AirdpError as error:
            raise ValueError(str(error)) from error
        return self

    def front_end(self, clock_ppm: float) -> FrontEnd:
        """The radio's circuits; `clock_ppm` is used where none was given."""
        return FrontEnd(
            clock_ppm=clock_ppm if self.clock_ppm is None else self.clock_ppm,
            phase_noise_rad_per_sqrt_sample=self.phase_noise_rad_per_sqrt_sample,
            iq_image_db=self.iq_image_db,
            dc_offset_dbfs=self.dc_offset_dbfs,
            pa_saturation=self.pa_saturation,
            pa_smoothness=self.pa_smoothness,
            dac_bits=self.dac_bits,
            adc_bits=self.adc_bits,
            noise_var_complex=self.noise_var_complex,
        )

    def link(self, delay_samples: float, receive_gain_db: float = 0.0) -> Link:
        """A link of the radio as a sender; `delay_samples` is used where none was given."""
        delay = delay_samples if self.delay_samples is None else self.delay_samples
        powers = power_profile(self.taps, self.gain_db + receive_gain_db)
        if self.fading is FadingKind.RAYLEIGH:
            return Link(RayleighFading(powers), delay)
        amplitudes = np.sqrt(powers) * np.exp(1j * self.phase_rad)
        return Link(StaticFading(tuple(amplitudes.tolist())), delay)


class MediumSettings(RadioMedium, BackendSection):
    """[medium] Simulated air and radios: values for all radios, and under `[medium.radio.NAME]` those of one."""

    max_delay_samples: NotNegative = 0.0
    """Delays that are not given are drawn up to this."""
    max_clock_ppm: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Crystals that are not given are drawn within plus and minus this."""
    path_loss_exponent: NotNegative = 2.0
    """Power of the distance with which gains fall where radios have positions: 2 in the open, 3 to 4 in buildings."""
    radio: dict[str, RadioMedium] = Field(default_factory=dict)

    @field_serializer("radio")
    def _given(self, radio: dict[str, RadioMedium]) -> dict[str, dict[str, Any]]:
        """What is given for one radio, and not what it shares with all: read again, defaults would be its own."""
        return {name: own.model_dump(mode="json", exclude_unset=True, exclude_none=True) for name, own in radio.items()}

    @property
    def has_dac_bits(self) -> bool:
        """Whether any radio is given a transmit converter."""
        return any(medium.dac_bits is not None for medium in (self, *self.radio.values()))

    def without_dac_bits(self) -> Self:
        """The same, with ideal transmit converters: for radios that bring their own."""
        ideal = {"dac_bits": None}
        radios = {name: radio.model_copy(update=ideal) for name, radio in self.radio.items()}
        return self.model_copy(update={**ideal, "radio": radios})

    def check_radios(self, names: Sequence[str]) -> None:
        """See `BackendSection.check_radios`."""
        for name in self.radio:
            if name not in names:
                hint = nearest(name, names) or f"; there are {', '.join(names)}"
                raise HardwareError(f"medium.radio.{name}: the lab has no such radio{hint}")
        self._check_positions(names)

    def _check_positions(self, names: Sequence[str]) -> None:
        places = {name: self._of(name).position_m for name in names}
        without = [name for name, place in places.items() if place is None]
        if len(without) == len(places):
            return
        if without:
            raise HardwareError(
                f"medium.radio: {', '.join(without)} without position_m: expected one for every radio of the lab, "
                "or none"
            )
        first: dict[Any, str] = {}
        for name, place in places.items():
            if place in first:
                raise HardwareError(f"medium.radio.{name}.position_m is {place}, where '{first[place]}' stands already")
            first[place] = name

    def front_end_of(self, name: str, randomness: Randomness) -> FrontEnd:
        """Circuits of the radio `name`, its crystal drawn from its own stream where none was given."""
        drawn = float(randomness.generator(Purpose.CRYSTAL, name).uniform(-1.0, 1.0)) * self.max_clock_ppm
        return self._of(name).front_end(drawn)

    def link_of(self, sender: str, randomness: Randomness, receiver: str | None = None) -> Link:
        """Link of the radio `sender`, its delay drawn from its own stream where none was given.

        receiver: whose `receive_gain_db` is added, and what the distance takes; None: nobody's.
        """
        drawn = float(randomness.generator(Purpose.DELAY, sender).uniform(0.0, 1.0)) * self.max_delay_samples
        gain_db = 0.0
        if receiver is not None:
            gain_db = self._of(receiver).receive_gain_db + self._spread_db(sender, receiver)
        return self._of(sender).link(drawn, gain_db)

    def _spread_db(self, sender: str, receiver: str) -> float:
        """Power gain of the way between two radios relative to 1 m; 0 where it is not known where they stand."""
        here, there = self._of(sender).position_m, self._of(receiver).position_m
        if here is None or there is None or sender == receiver:
            return 0.0
        return -10.0 * self.path_loss_exponent * math.log10(math.dist(here, there))

    def leakage_of(self, name: str) -> Link | None:
        """The path from a radio into itself, where there is one."""
        leakage_db = self._of(name).leakage_db
        return None if leakage_db is None else Link(StaticFading((db_to_amplitude_ratio(leakage_db),)))

    def _of(self, name: str) -> RadioMedium:
        own = self.radio.get(name)
        return self if own is None else self.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


def medium_of(lab: Lab) -> MediumSettings:
    """The section of a lab."""
    return lab.section(SECTION, MediumSettings)
