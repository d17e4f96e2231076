"""Opens the USRPs of a lab, wherever they are, and reaches them again."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from hardware.lab.model import Lab, Role
from hardware.radio.contract import Radio
from hardware.usrp.boxes import Boxes
from hardware.usrp.radio import UsrpRadio


def connect_usrps(
    lab: Lab, addresses: Mapping[str, str], stack: ExitStack, *, lockstep: bool = False
) -> dict[str, UsrpRadio]:
    """Open every radio of a lab at its address, with one time for all; the stack closes them.

    lockstep: they are virtual ones whose time stands still while nobody receives.
    """
    boxes = Boxes(lab, addresses, lockstep=lockstep)
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

    Timestamps need no alignment: nobody's count has changed.
    """
    del lab
    found = [radio for radio in radios.values() if isinstance(radio, UsrpRadio)]
    if found:
        found[0].boxes.give_up_restarted()
    if any(radio.lost for radio in found):
        _recover(found)
    for radio in found:
        radio.forget_losses()
    if found:
        found[0].boxes.verify()
    return ()


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
