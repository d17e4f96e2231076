"""SOUND: silence, then every transmitter alone in its slot, said in messages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.noise import NoiseMeasurement, SigmaBound
from fl.nodes.air_format import POWER_BLOCK, SLOTS_PER_GROUP, AirFormat
from fl.nodes.link import Link
from fl.nodes.messages import Check, HearSoundings, MeasureSilence, Sound, SoundedChannel

NoiseCheck = Callable[[NoiseMeasurement], None]
"""Looks at the noise of a silence and raises a `HardwareError` where nobody may send in it."""


@dataclass(frozen=True)
class Soundings:
    """What a sounding phase showed. noise: in silence. sigma, sigma_everywhere: its lower bounds, see `Silence`.
    states: one per transmitter.

    power: mean |x|^2 of consecutive blocks of POWER_BLOCK samples, without the delays of radios that need a lead.
    end_sample: the first after the last slot.
    """

    noise: NoiseMeasurement
    sigma: SigmaBound
    sigma_everywhere: SigmaBound
    states: tuple[SoundedChannel, ...]
    power: NDArray[np.float32]
    end_sample: int


def sound(
    link: Link,
    server: str,
    transmitters: Sequence[str],
    air: AirFormat,
    start_sample: int,
    *,
    not_before: Callable[[int], int] = lambda planned: planned,
    check_noise: NoiseCheck = lambda noise: None,
) -> Soundings:
    """Let the server measure the silence from `start_sample` on, then make each transmitter sound in its slot.

    not_before: planned sample to the one at which transmitters can start: radios that work ahead of the air may need
    more than the format's pauses.
    """
    silence = link.ask(server, MeasureSilence(start_sample))
    check_noise(silence.noise)
    start_sample = silence.start_sample
    power = np.full(air.sounding_phase_samples(len(transmitters)) // POWER_BLOCK, np.nan, np.float32)
    power[: silence.power.size] = silence.power
    states: list[SoundedChannel] = []
    for first in range(0, len(transmitters), SLOTS_PER_GROUP):
        group = transmitters[first : first + SLOTS_PER_GROUP]
        planned = start_sample + air.slot_start(first)
        begin = not_before(planned)
        link.ask_all([(name, Sound(begin + place * air.slot_samples)) for place, name in enumerate(group)])
        heard = link.ask(server, HearSoundings(first, len(group), begin))
        states += heard.states
        block = (planned - air.margin_samples - start_sample) // POWER_BLOCK
        power[block : block + heard.power.size] = heard.power[: power.size - block]
    # A sounding that left with a gap shows another channel than there is: found now, it costs nothing.
    link.ask_all([(name, Check()) for name in transmitters])
    end_sample = begin + len(group) * air.slot_samples
    return Soundings(silence.noise, silence.sigma, silence.sigma_everywhere, tuple(states), power, end_sample)
