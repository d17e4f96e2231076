"""The registration."""

from contextlib import ExitStack

from cable_radios.settings import CableSettings
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.requirements import module_requirement
from hardware.lab.traits import JammerNoise, Traits


def _traits(lab: Lab) -> Traits:
    from cable_radios.radio import CAPABILITIES

    return Traits(CAPABILITIES, simulated_air=True, virtual_time=True, jammer_noise=JammerNoise.SEED, exclusive=None)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from cable_radios.radio import Cable, CableRadio

    settings = lab.section("cable", CableSettings)
    cable = Cable(seed, 10 ** (-settings.attenuation_db / 20), settings.noise_var_complex)
    radios = {
        radio.name: stack.enter_context(CableRadio(radio.name, cable, lab.limits, lab.timeout_s))
        for radio in lab.radios
    }
    return Connection(radios, cable, cable)


BACKEND = Backend(
    "cable",
    {"cable": CableSettings},
    _traits,
    _connect,
    requirements=lambda: [module_requirement("cable_radios", "cables", "pip install cable-radios")],
)
