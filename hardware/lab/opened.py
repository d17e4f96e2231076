"""A lab whose radios are open."""

import atexit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hardware.lab.leaving import Leaving
from hardware.lab.model import Connection, Lab
from hardware.lab.simulation import SimulatedAir, VirtualTime
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.radio.termination import orderly_termination


@dataclass(frozen=True)
class OpenLab:
    """Radios of an open lab, configured as the lab says.

    air: where it is simulated, be it in another process. time: where it is virtual. Both are None for real radios.
    leaving: how its radios are silenced in the end.
    """

    lab: Lab
    radios: Mapping[str, Radio]
    air: SimulatedAir | None = None
    time: VirtualTime | None = None
    leaving: Leaving | None = None

    @property
    def ps(self) -> Radio:
        """The parameter server's radio."""
        return self.radios[self.lab.ps.name]

    @property
    def clients(self) -> tuple[Radio, ...]:
        """The clients' radios, in the file's order."""
        return tuple(self.radios[radio.name] for radio in self.lab.clients)

    @property
    def jammer(self) -> Radio | None:
        """The jammer's radio, where there is one."""
        return None if self.lab.jammer is None else self.radios[self.lab.jammer.name]

    def jammed_by(self, name: str) -> None:
        """Say who jams from now on, where that is not the radio that has the role: it is silenced last."""
        if self.leaving is not None:
            self.leaving.jamming = name

    def new_block(self, block: int) -> None:
        """Begin fading block `block` in a simulated air; a real one fades by itself."""
        if self.air is not None:
            self.air.new_block(block)

    def ready(self) -> tuple[str, ...]:
        """Make sure that all radios that are not parked count alike; call it before anything is planned in samples.

        Radios that count alike by themselves do nothing. Others may transmit for it, and raise a `HardwareError` where
        it does not work. Returns the names of radios whose count changed: what was learnt about it before is void.
        """
        align = self.lab.backend.align
        return () if align is None else align(self.lab, self.radios)

    @property
    def _lead_samples(self) -> int:
        return max(radio.lead_samples for radio in self.radios.values())

    def start_sample(self, margin_samples: int = 0) -> int:
        """A sample that no radio has passed and in which none is busy, `margin_samples` and the radios' lead later."""
        return max(radio.now() for radio in self.radios.values()) + self._lead_samples + margin_samples

    def not_before(self, planned_sample: int) -> int:
        """`planned_sample`, or the first one at which all radios can still send, where they need a lead for that."""
        return max(planned_sample, self.start_sample()) if self._lead_samples else planned_sample


@contextmanager
def open_lab(lab: Lab, seed: int) -> Iterator[OpenLab]:
    """Connect to all radios and configure them; park and close all of them, in order, however the block is left.

    However: normally, by an error, by SIGINT, SIGTERM or SIGHUP, or never, by the end of the program. See `Leaving`.
    seed: of the simulated air, where the backend has one.
    """
    with ExitStack() as stack:
        stack.enter_context(orderly_termination())
        connection = lab.backend.connect(lab, seed, stack)
        leaving = Leaving(lab, connection.radios)
        # After what backends have registered for themselves, which makes it the first to be called.
        atexit.register(leaving.at_exit)
        stack.callback(atexit.unregister, leaving.at_exit)
        stack.push(leaving)
        _check_connection(lab, connection, [radio.name for radio in lab.radios])
        for radio in lab.radios:
            connection.radios[radio.name].configure(radio.settings)
        yield OpenLab(lab, connection.radios, connection.air, connection.time, leaving)


@contextmanager
def open_radio(lab: Lab, name: str) -> Iterator[OpenLab]:
    """As `open_lab` for a single radio of a lab, whose others belong to other processes."""
    connect_one = lab.backend.connect_one
    if connect_one is None:
        raise HardwareError(
            f"radios of the backend '{lab.backend.name}' cannot be opened one by one: all belong to one process"
        )
    radio = lab.radio(name)
    with ExitStack() as stack:
        stack.enter_context(orderly_termination())
        connection = connect_one(lab, name, stack)
        leaving = Leaving(lab, connection.radios)
        atexit.register(leaving.at_exit)
        stack.callback(atexit.unregister, leaving.at_exit)
        stack.push(leaving)
        _check_connection(lab, connection, [name])
        connection.radios[name].configure(radio.settings)
        yield OpenLab(lab, connection.radios, connection.air, connection.time, leaving)


def _check_connection(lab: Lab, connection: Connection, names: Sequence[str]) -> None:
    """Before anything is sent: what rests on the traits, such as whose noise a jammer sends, rests on the truth."""
    missing = [name for name in names if name not in connection.radios]
    if missing:
        raise HardwareError(f"the backend '{lab.backend.name}' has opened no radio '{missing[0]}'")
    traits = lab.traits
    for what, said, found in (
        ("simulated air", traits.simulated_air, connection.air),
        ("virtual time", traits.virtual_time, connection.time),
    ):
        if said != (found is not None):
            raise HardwareError(
                f"the backend '{lab.backend.name}' says that it has {'' if said else 'no '}{what}, and has "
                f"{'none' if said else 'some'}"
            )
