"""USRPs that are emulated: the whole way of a real one, libuhd and UDP included, to a simulated air.

One process has all boxes of a lab. It ends with this one, however this one ends.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack

from hardware.air.settings import SECTION as MEDIUM
from hardware.air.settings import MediumSettings
from hardware.lab.addresses import address_of
from hardware.lab.emulation import Emulation, EmulationSettings
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.traits import JammerNoise, Traits
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.usrp.apart import PulsesApart
from hardware.usrp.settings import CAPABILITIES, KIND, SECTION, UsrpSettings

NAME = "usrp-virtual"


def _traits(lab: Lab) -> Traits:
    del lab
    # As in the loopback: nothing real is protected, and what the two make of the same noise can be compared.
    return Traits.of_virtual_devices(CAPABILITIES, JammerNoise.SEED)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.usrp.connect import connect_usrps
    from hardware.virtual.process import emulator_process
    from hardware.virtual.usrp2.emulated_air import EmulatedAir
    from hardware.virtual.usrp2.side_channel import ask

    served = stack.enter_context(emulator_process(NAME, lab, seed=seed))
    radios = connect_usrps(lab, served.uris, stack, lockstep=True, gone=served.gone)
    for uri in served.uris.values():
        # In lockstep the driver reads what somebody waits for, and nothing else.
        ask(uri, eager=1)
    return Connection(radios, EmulatedAir(served.uris[lab.ps.name]))


def _connect_one(lab: Lab, name: str, stack: ExitStack) -> Connection:
    """A box whose lab is served already."""
    from hardware.usrp.connect import connect_usrp
    from hardware.virtual.usrp2.emulated_air import EmulatedAir
    from hardware.virtual.usrp2.side_channel import ask

    address = address_of(lab, name, KIND)
    radio = connect_usrp(lab, name, address, stack, lockstep=True)
    ask(address, eager=1)
    return Connection({name: radio}, EmulatedAir(address))


def _align(lab: Lab, radios: Mapping[str, Radio]) -> tuple[str, ...]:
    from hardware.usrp.connect import reach_again

    return reach_again(lab, radios)


def _emulate(lab: Lab, settings: EmulationSettings) -> AbstractContextManager[Emulation]:
    from hardware.virtual.usrp2.emulator import Emulator

    if settings.port is not None:
        raise HardwareError(f"the port is {settings.port}: those of a USRP cannot be chosen")
    return Emulator(lab, seed=settings.seed, paced=settings.paced)


BACKEND = Backend(
    NAME,
    {SECTION: UsrpSettings, MEDIUM: MediumSettings},
    _traits,
    _connect,
    _align,
    emulate=_emulate,
    emulates="usrp",
    connect_one=_connect_one,
    one_count=PulsesApart(),
)
