"""Radios on the simulated air: the backend that needs no hardware."""

from contextlib import ExitStack

from hardware.air.settings import SECTION, MediumSettings
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.traits import JammerNoise, Traits
from hardware.radio.ad936x import AD936X


def _traits(lab: Lab) -> Traits:
    del lab
    return Traits(AD936X, simulated_air=True, virtual_time=True, jammer_noise=JammerNoise.SEED, exclusive=None)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.air.build import build_medium
    from hardware.loopback.radio import LoopbackRadio, MediumTime

    medium = build_medium(lab, seed)
    radios = {
        radio.name: stack.enter_context(LoopbackRadio(radio.name, medium, lab.limits, lab.timeout_s))
        for radio in lab.radios
    }
    return Connection(radios, medium, MediumTime(medium, lab.ps.name))


BACKEND = Backend("loopback", {SECTION: MediumSettings}, _traits, _connect)
