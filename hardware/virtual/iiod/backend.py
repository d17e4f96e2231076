"""Plutos that are emulated: the whole way of a real one, libiio and TCP included, to a simulated air.

One process has all radios of a lab. It ends with this one, however this one ends.
"""

from contextlib import AbstractContextManager, ExitStack

from hardware.air.settings import SECTION as MEDIUM
from hardware.air.settings import MediumSettings
from hardware.counted.alignment import align
from hardware.counted.apart import CountsApart
from hardware.lab.emulation import Emulation, EmulationSettings
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.traits import Traits
from hardware.pluto.settings import CAPABILITIES, SECTION, PlutoSettings
from hardware.radio.errors import HardwareError

NAME = "pluto-virtual"


def _traits(lab: Lab) -> Traits:
    medium = lab.section(MEDIUM, MediumSettings)
    if medium.has_dac_bits:
        raise HardwareError(
            "medium.dac_bits is given, and a Pluto has a converter of its own, of 12 bits: rounding twice is not "
            "accounted for. Remove dac_bits, or use the backend loopback"
        )
    return Traits.of_virtual_devices(CAPABILITIES)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.pluto.connect import connect_plutos
    from hardware.virtual.iiod.emulated_air import EmulatedAir
    from hardware.virtual.process import emulator_process

    served = stack.enter_context(emulator_process(NAME, lab, seed=seed))
    radios = connect_plutos(lab, served.uris, stack)
    return Connection(radios, EmulatedAir(radios[lab.ps.name]))


def _connect_one(lab: Lab, name: str, stack: ExitStack) -> Connection:
    """A radio whose lab is served already."""
    from hardware.pluto.connect import connect_plutos
    from hardware.virtual.iiod.emulated_air import EmulatedAir

    radios = connect_plutos(lab, {name: lab.address_of(name)}, stack)
    return Connection(radios, EmulatedAir(radios[name]))


def _emulate(lab: Lab, settings: EmulationSettings) -> AbstractContextManager[Emulation]:
    from hardware.virtual.iiod.emulator import Emulator

    return Emulator(lab, seed=settings.seed, port=settings.port, paced=settings.paced)


BACKEND = Backend(
    NAME,
    {SECTION: PlutoSettings, MEDIUM: MediumSettings},
    _traits,
    _connect,
    align,
    emulate=_emulate,
    emulates="pluto",
    connect_one=_connect_one,
    one_count=CountsApart(),
)
