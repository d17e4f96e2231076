"""Radios that are GNU Radio flowgraphs, reached over ZeroMQ; this process needs no GNU Radio in its own Python.

Each radio of a lab is a flowgraph of `flowgraphs/` in a process of its own. With the device "zeromq" they meet in the
flowgraph `air`, whose time moves only as far as somebody receives.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from hardware.air.settings import SECTION as MEDIUM
from hardware.air.settings import MediumSettings, medium_of
from hardware.counted.alignment import align, require_one_direction
from hardware.gnuradio.settings import CAPABILITIES, SECTION, Device, GnuRadioSettings, gnuradio_of
from hardware.lab.addresses import addresses_of
from hardware.lab.clock import ClockMode
from hardware.lab.model import Backend, Connection, Lab, Role
from hardware.lab.requirements import Requirement, module_requirement, tool_requirement
from hardware.lab.traits import JammerNoise, Traits
from hardware.radio.contract import Radio
from hardware.radio.errors import LabFileError

_NOT_IN_THE_AIR = (
    "phase_noise_rad_per_sqrt_sample",
    "iq_image_db",
    "dc_offset_dbfs",
    "pa_saturation",
    "dac_bits",
    "adc_bits",
)
_KINDS = {Device.PLUTO: "Pluto", Device.UHD: "USRP"}
_LOG = logging.getLogger("airdp")


def _traits(lab: Lab) -> Traits:
    settings = gnuradio_of(lab)
    # A monitor's address is one that others know, and only one program can listen there.
    monitored = f"the address {settings.monitor} (gnuradio.monitor)" if settings.monitor else None
    return Traits(
        CAPABILITIES[settings.device],
        simulated_air=settings.simulated,
        virtual_time=False,
        jammer_noise=JammerNoise.SYSTEM,
        exclusive=monitored if settings.simulated else "real radios",
    )


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.gnuradio.processes import FlowgraphProcesses
    from hardware.gnuradio.radio import GnuRadioRadio

    for radio in lab.radios:
        require_one_direction(lab, radio)
        if radio.role is Role.OBSERVER:
            raise LabFileError(
                f"{lab.source}: '{radio.name}' is an observer: the drawing 'air' has one receiver, the ps, and "
                "no drawing only listens; validate against an observer with --backend loopback"
            )
    simulated = gnuradio_of(lab).simulated
    if simulated:
        _check_air(lab)
    else:
        addresses_of(lab, _KINDS[gnuradio_of(lab).device])
    radios: dict[str, Radio] = {}
    processes = stack.enter_context(FlowgraphProcesses(lab, seed))
    for radio in lab.radios:
        radios[radio.name] = stack.enter_context(
            GnuRadioRadio(radio.name, processes, lab.limits, lab.timeout_s, receives=radio.role is Role.PS)
        )
    return Connection(radios, processes if simulated else None)


def _check_air(lab: Lab) -> None:
    if lab.clock_mode is not ClockMode.SHARED:
        raise LabFileError(
            f"{lab.source}: clock is '{lab.clock_mode}': the flowgraph air has one clock for all; "
            "write clock = 'shared', or use the loopback"
        )
    ideal, medium = MediumSettings(), medium_of(lab)
    ignored = sorted(
        {
            key
            for section in (medium, *medium.radio.values())
            for key in _NOT_IN_THE_AIR
            if getattr(section, key) != getattr(ideal, key)
        }
    )
    if ignored:
        _LOG.warning("%s: the flowgraph air does without %s", lab.source, ", ".join(ignored))


def _requirements() -> Sequence[Requirement]:
    from flowgraphs.build import INSTALL
    from flowgraphs.errors import FlowgraphError
    from flowgraphs.runtime import gnuradio_python

    install = f"sudo {INSTALL}"
    try:
        gnuradio = module_requirement("gnuradio", "flowgraphs", install, gnuradio_python())
    except FlowgraphError as error:
        gnuradio = Requirement("gnuradio", "flowgraphs", present=False, detail=str(error).split(";")[0], help=install)
    return (
        gnuradio,
        tool_requirement("grcc", "flowgraphs", install),
        module_requirement("uhd", "USRP", "sudo apt-get install python3-uhd uhd-host"),
        tool_requirement("uhd_find_devices", "USRP", "sudo apt-get install uhd-host"),
    )


BACKEND = Backend(
    "gnuradio",
    {SECTION: GnuRadioSettings, MEDIUM: MediumSettings},
    _traits,
    _connect,
    align,
    requirements=_requirements,
    hints={"uhd": 'backend = "gnuradio" with device = "uhd" in [gnuradio]'},
)
