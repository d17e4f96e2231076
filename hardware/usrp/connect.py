"""Opens the USRPs of a lab, wherever they are, and reaches them again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab, Role
from hardware.radio.contract import Radio
from hardware.radio.errors import LockLostError
from hardware.usrp.boxes import Boxes
from hardware.usrp.radio import UsrpRadio

LARGEST_DRIFT_SAMPLES = 32
"""By which counts of boxes with crystals of their own may have drifted apart before they are moved together again."""
_ATTEMPTS = 3


def connect_usrps(
    lab: Lab,
    addresses: Mapping[str, str],
    stack: ExitStack,
    *,
    lockstep: bool = False,
    gone: Callable[[], str] = str,
) -> dict[str, UsrpRadio]:
    """Open every radio of a lab at its address, with one time for all; the stack closes them.

    lockstep: they are virtual ones whose time stands still while nobody receives. gone: see `UsrpDevice`.
    """
    boxes = Boxes(lab, addresses, lockstep=lockstep, gone=gone)
    boxes.open()
    stack.callback(boxes.close)
    radios: dict[str, UsrpRadio] = {}
    for radio in lab.radios:
        made = UsrpRadio(
            radio.name,
            boxes,
            lab.limits,
            lab.timeout_s,
            receives=radio.receives,
            observes=radio.role is Role.OBSERVER,
            lockstep=lockstep,
        )
        radios[radio.name] = stack.enter_context(made)
    return radios


def connect_usrp(lab: Lab, name: str, address: str, stack: ExitStack, *, lockstep: bool = False) -> UsrpRadio:
    """Open a single radio of a lab, whose others belong to other processes; its count begins at a pulse."""
    boxes = Boxes(lab, {name: address}, lockstep=lockstep)
    boxes.open_alone()
    stack.callback(boxes.close)
    receives = lab.radio(name).receives
    radio = UsrpRadio(name, boxes, lab.limits, lab.timeout_s, receives=receives, lockstep=lockstep, alone=True)
    return stack.enter_context(radio)


def reach_again_alone(radio: UsrpRadio) -> None:
    """Find a box again that was lost, and verify that it has its reference."""
    radio.boxes.give_up_restarted()
    if radio.lost:
        _recover([radio])
    radio.forget_losses()
    radio.boxes.verify()


def reach_again(lab: Lab, radios: Mapping[str, Radio]) -> tuple[str, ...]:
    """Find boxes again that were lost, and verify that all still have one reference and one time.

    Timestamps need no alignment: nobody's count has changed, unless crystals of their own have let counts drift apart.
    """
    found = [radio for radio in radios.values() if isinstance(radio, UsrpRadio)]
    if found:
        found[0].boxes.give_up_restarted()
    if any(radio.lost for radio in found):
        _recover(found)
    for radio in found:
        radio.forget_losses()
    if found:
        found[0].boxes.verify()
    if lab.clock_mode is ClockMode.SHARED:
        return ()
    server = next(radio for radio in found if radio.name == lab.ps.name)
    return _follow_pulses(server, [radio for radio in found if radio is not server])


def _recover(radios: Sequence[UsrpRadio]) -> None:
    """What was lost gets its time at a pulse, for which time has to pass."""
    for radio in radios:
        radio.pause()
    try:
        for radio in radios:
            radio.recover()
    finally:
        for radio in radios:
            radio.resume()


def _follow_pulses(server: UsrpRadio, others: Sequence[UsrpRadio]) -> tuple[str, ...]:
    """Let radios with crystals of their own count as the server does again; names of those whose count was changed.

    The tick of a pulse is known exactly by each box, so this costs no transmission; what is left is a part of a sample,
    and what the crystals do until the next time.
    """
    moved = []
    for radio in others:
        if radio.parked or not radio.boxes.ready(radio.name) or radio.sending:
            # What is on its way leaves at the samples that it was given; there is a next time.
            continue
        ahead = _ahead_samples(radio, server)
        if abs(ahead) > LARGEST_DRIFT_SAMPLES:
            radio.count_back(ahead)
            moved.append(radio.name)
    return tuple(moved)


def _ahead_samples(radio: UsrpRadio, server: UsrpRadio) -> int:
    """By how much a radio has counted the last pulse as a later sample than the server."""
    for _ in range(_ATTEMPTS):
        before, own, after = server.pulse_sample(), radio.pulse_sample(), server.pulse_sample()
        # None may have come in between.
        if before == after:
            return round(own - before)
    raise LockLostError(f"{radio.name} and {server.name} cannot be asked for their last pulse within one second")
