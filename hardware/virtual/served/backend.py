"""The loopback's radios with the air in a process of its own, so that each radio may belong to another process.

Where a lab's radios have addresses, their air is served already (`airdp emulate LAB --backend loopback-served`).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from hardware.air.settings import SECTION, MediumSettings
from hardware.lab.emulation import Emulation, EmulationSettings
from hardware.lab.model import Backend, Connection, Lab, LabRadio
from hardware.lab.traits import JammerNoise, Traits
from hardware.radio.ad936x import AD936X

NAME = "loopback-served"


def _traits(lab: Lab) -> Traits:
    del lab
    return Traits(AD936X, simulated_air=True, virtual_time=True, jammer_noise=JammerNoise.SEED, exclusive=None)


def _addresses(lab: Lab, seed: int, stack: ExitStack) -> Mapping[str, str]:
    from hardware.virtual.process import emulator_process

    if all(radio.address for radio in lab.radios):
        return {radio.name: radio.address for radio in lab.radios}
    return stack.enter_context(emulator_process(NAME, lab, seed=seed)).uris


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    return _open(lab, lab.radios, _addresses(lab, seed, stack), stack)


def _connect_one(lab: Lab, name: str, stack: ExitStack) -> Connection:
    return _open(lab, [lab.radio(name)], {name: lab.address_of(name)}, stack)


def _open(lab: Lab, radios: Sequence[LabRadio], addresses: Mapping[str, str], stack: ExitStack) -> Connection:
    from hardware.virtual.served.radio import AirHandle, ServedRadio

    opened = {
        radio.name: stack.enter_context(
            ServedRadio(radio.name, addresses[radio.name], lab.sample_rate_hz, lab.limits, lab.timeout_s)
        )
        for radio in radios
    }
    handle = AirHandle(opened.get(lab.ps.name) or next(iter(opened.values())))
    return Connection(opened, handle, handle)


def _emulate(lab: Lab, settings: EmulationSettings) -> AbstractContextManager[Emulation]:
    from hardware.virtual.served.server import ServedAir

    return ServedAir(lab, settings.seed)


BACKEND = Backend(NAME, {SECTION: MediumSettings}, _traits, _connect, emulate=_emulate, connect_one=_connect_one)
