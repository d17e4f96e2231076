"""The simulated air that a lab describes."""

from dataclasses import replace

from hardware.air.link import Link
from hardware.air.medium import Medium
from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.model import Lab
from hardware.lab.simulation import SimulatedAir


def build_medium(
    lab: Lab,
    seed: int,
    *,
    sample_rate_hz: float | None = None,
    latency_samples: int = 0,
    listening: bool = True,
    mixed_rates: bool = False,
) -> Medium:
    """The air of a lab's [medium] section, with all of its radios in it.

    What is given as a largest value (delays, crystals) is drawn for each radio from the seed and the radio's name.
    sample_rate_hz: instead of the lab's. latency_samples: that every link has besides its delay. listening: whether
    those that receive in this lab do so from the start. mixed_rates: see `Medium`.
    """
    settings = medium_of(lab)
    rate_hz = lab.sample_rate_hz if sample_rate_hz is None else sample_rate_hz
    randomness = Randomness(seed)

    def link_of(sender: str, receiver: str) -> Link:
        link = settings.link_of(sender, randomness, receiver)
        return replace(link, delay_samples=link.delay_samples + latency_samples)

    medium = Medium(rate_hz, seed, clock_mode=lab.clock_mode, link_of=link_of, mixed_rates=mixed_rates)
    for radio in lab.radios:
        medium.add_radio(
            radio.name, settings.front_end_of(radio.name, randomness), receives=listening and radio.receives
        )
        leakage = settings.leakage_of(radio.name)
        if leakage is not None:
            medium.set_link(radio.name, radio.name, replace(leakage, delay_samples=float(latency_samples)))
    return medium


def air_of_this_process(air: SimulatedAir | None) -> Medium | None:
    """An open lab's air where this process simulates it, so that more is known of it; None where another does."""
    return air if isinstance(air, Medium) else None
