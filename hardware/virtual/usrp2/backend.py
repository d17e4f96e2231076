"""USRPs that are emulated: the whole way of a real one, libuhd and UDP included, to a simulated air.

One process has all boxes of a lab. It ends with this one, however this one ends.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack

from hardware.air.settings import SECTION as MEDIUM
from hardware.air.settings import MediumSettings
from hardware.lab.emulation import Emulation, EmulationSettings
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.traits import JammerNoise, Traits
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.usrp.settings import CAPABILITIES, SECTION, UsrpSettings

NAME = "usrp-virtual"


def _traits(lab: Lab) -> Traits:
    del lab
    return Traits(CAPABILITIES, simulated_air=True, virtual_time=False, jammer_noise=JammerNoise.SYSTEM, exclusive=None)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.usrp.connect import connect_usrps
    from hardware.virtual.process import emulator_process
    from hardware.virtual.usrp2.emulated_air import EmulatedAir

    served = stack.enter_context(emulator_process(NAME, lab, seed=seed))
    radios = connect_usrps(lab, served.uris, stack, lockstep=True)
    return Connection(radios, EmulatedAir(served.uris[lab.ps.name]))


def _align(lab: Lab, radios: Mapping[str, Radio]) -> tuple[str, ...]:
    from hardware.usrp.connect import reach_again

    return reach_again(lab, radios)


def _emulate(lab: Lab, settings: EmulationSettings) -> AbstractContextManager[Emulation]:
    from hardware.virtual.usrp2.emulator import Emulator

    if settings.port is not None:
        raise HardwareError(f"the port is {settings.port}: those of a USRP cannot be chosen")
    return Emulator(lab, seed=settings.seed, paced=settings.paced)


BACKEND = Backend(NAME, {SECTION: UsrpSettings, MEDIUM: MediumSettings}, _traits, _connect, _align, emulate=_emulate)
