"""The [medium] section of a lab file: what the simulated air and the simulated radios are like.

Other backends ignore it, but a mistake in it is refused all the same.
"""

from enum import StrEnum
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from hardware.errors import HardwareError
from hardware.front_end import FrontEnd
from hardware.link import Link, RayleighFading, StaticFading, power_profile
from hardware.sections import Section, as_tuple, choice, nearest
from hardware.streams import Purpose, Streams
from phy.errors import AirdpError

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


Pair = Annotated[tuple[float, float], BeforeValidator(as_tuple)]
Tap = Annotated[tuple[int, float], BeforeValidator(as_tuple)]


class FadingKind(StrEnum):
    """How a link's gain behaves from block to block."""

    STATIC = "static"
    RAYLEIGH = "rayleigh"


class RadioMedium(Section):
    """What may differ from radio to radio; a link has the values of its sender. Everything is ideal by default.

    See `FrontEnd` for the meaning of the keys that it has too.
    """

    gain_db: Finite = 0.0
    """Mean power gain of the sender's links, over all taps."""
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
    iq_image_db: Finite | None = None
    dc_offset_dbfs: Finite | None = None
    pa_saturation: Finite | None = None
    pa_smoothness: Finite = 2.0
    dac_bits: int | None = None
    adc_bits: int | None = None
    noise_var_complex: NotNegative = 0.0

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

    def link(self, delay_samples: float) -> Link:
        """A link of the radio as a sender; `delay_samples` is used where none was given."""
        delay = delay_samples if self.delay_samples is None else self.delay_samples
        powers = power_profile(self.taps, self.gain_db)
        if self.fading is FadingKind.RAYLEIGH:
            return Link(RayleighFading(powers), delay)
        amplitudes = np.sqrt(powers) * np.exp(1j * self.phase_rad)
        return Link(StaticFading(tuple(amplitudes.tolist())), delay)


class MediumSettings(RadioMedium):
    """The whole section: values for all radios, and under `radio` those of single ones by name."""

    max_delay_samples: NotNegative = 0.0
    max_clock_ppm: Annotated[float, Field(ge=0, le=1000)] = 0.0
    radio: dict[str, RadioMedium] = Field(default_factory=dict)

    def check_names(self, known: list[str]) -> None:
        """Raise `HardwareError` for values of a radio that is not among `known`."""
        for name in self.radio:
            if name not in known:
                hint = nearest(name, known) or f"; there are {', '.join(known)}"
                raise HardwareError(f"medium.radio.{name}: the lab has no such radio{hint}")

    def front_end_of(self, name: str, streams: Streams) -> FrontEnd:
        """Circuits of the radio `name`, its crystal drawn from its own stream where none was given."""
        drawn = float(streams.generator(Purpose.CRYSTAL, name).uniform(-1.0, 1.0)) * self.max_clock_ppm
        return self._of(name).front_end(drawn)

    def link_of(self, sender: str, streams: Streams) -> Link:
        """Link of the radio `sender`, its delay drawn from its own stream where none was given."""
        drawn = float(streams.generator(Purpose.DELAY, sender).uniform(0.0, 1.0)) * self.max_delay_samples
        return self._of(sender).link(drawn)

    def _of(self, name: str) -> RadioMedium:
        own = self.radio.get(name)
        return self if own is None else self.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
