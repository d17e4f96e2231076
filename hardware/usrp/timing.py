"""One time and one reference for all boxes of a lab: set, and then verified, because libuhd says nothing.

Time is set to a whole second at the next pulse, which all boxes get from one source. Afterwards every box must have
counted its last pulse as the same second. A box at the end of a MIMO cable takes its time over from the other end,
which needs no pulse where it is the only one that is told the time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardware.lab.clock import ClockMode
from hardware.radio.errors import HardwareError, LabFileError, LockLostError
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import Source, UsrpBox

LOCK_S = 5.0
"""For a box to follow its reference."""
PULSE_S = 2.5
"""Within which a pulse per second must have come."""
DRIFT_S = 0.4
"""By which boxes with crystals of their own may have drifted apart: 10 ppm in half a day. Beyond half a second nobody
could tell which pulse is which."""
_LOOK_S = 0.01
# Virtual boxes count in steps of their samples.
_STEP_S = 1e-5
# After a pulse there is that much time to tell all boxes what the next one is.
_MOST_TELLING_S = 0.7
_ATTEMPTS = 3
# And what asking takes.
_A_SECOND_S = 1.2


def require_common_sources(boxes: Mapping[str, UsrpBox], clock: ClockMode, source: str) -> None:
    """Raise `LabFileError` where the boxes of a lab cannot have one time, or not the one reference that it promises."""
    _require_cables(boxes, source)
    for key, needed in (("time_source", True), ("clock_source", clock is ClockMode.SHARED)):
        alone = [name for name, box in boxes.items() if getattr(box, key) is Source.INTERNAL]
        if needed and len(alone) > 1:
            why = "each counts by itself" if key == "time_source" else "no clock is shared"
            raise LabFileError(
                f"{source}: {', '.join(alone)} have usrp.{key} = 'internal': {why}; connect them and write 'external', "
                "'gpsdo' or 'mimo' for all but one"
                + ("" if key == "time_source" else ", or clock = 'free-running' in [lab]")
            )


def _require_cables(boxes: Mapping[str, UsrpBox], source: str) -> None:
    """A MIMO cable has two ends, and each box one connector for it: the box at the other end has another source."""
    for key in ("clock_source", "time_source"):
        cabled = [name for name, box in boxes.items() if getattr(box, key) is Source.MIMO]
        leading = len(boxes) - len(cabled)
        if len(cabled) > leading:
            raise LabFileError(
                f"{source}: {', '.join(cabled)} have usrp.{key} = 'mimo', and {leading} boxes another one: each needs "
                "a box of its own at the other end of its cable, which has 'internal', 'external' or 'gpsdo'"
            )


def choose_sources(device: UsrpDevice, box: UsrpBox) -> None:
    """Set where clock and time come from, read back, and wait until the box follows."""
    for kind, source in (("clock", box.clock_source), ("time", box.time_source)):
        known = [str(name) for name in device.get(f"{kind}_sources")]
        # A box whose own pulse is none calls it so.
        wanted = "none" if source is Source.INTERNAL and source.value not in known else source.value
        if wanted not in known:
            raise LabFileError(f"{device.name} has no {kind} source '{wanted}': expected {', '.join(known)}")
        device.set(f"{kind}_source", wanted)
        got = str(device.get(f"{kind}_source"))
        if got != wanted:
            raise HardwareError(f"{device.name}: its {kind} source was set to {wanted} and reads back as {got}")
    deadline_s = time.monotonic() + LOCK_S
    while not locked(device, box):
        if time.monotonic() > deadline_s:
            raise LockLostError(f"{device.name} does not follow its reference: {_what_to_check(box)}")
        time.sleep(_LOOK_S)


def locked(device: UsrpDevice, box: UsrpBox) -> bool:
    """Whether a box follows its reference, as far as it has sensors for it."""
    names = {
        Source.EXTERNAL: ("ref_locked",),
        Source.MIMO: ("mimo_locked",),
        Source.GPSDO: ("ref_locked",),
    }.get(box.clock_source, ())
    # Without satellites a GPSDO's pulses come when its own crystal thinks that a second is over.
    satellites = ("gps_locked",) if Source.GPSDO in (box.clock_source, box.time_source) else ()
    return all(device.sensor(name) is not False for name in (*names, *satellites))


def require_locked(device: UsrpDevice, box: UsrpBox) -> None:
    """Raise `LockLostError` where a box has ceased to follow its reference, or an oscillator is out of lock."""
    if not locked(device, box):
        raise LockLostError(f"{device.name} has lost its reference: {_what_to_check(box)}")
    unlocked = _unlocked(device)
    if unlocked:
        raise LockLostError(f"{device.name}: its {unlocked} oscillator is out of lock")


def set_one_time(devices: Mapping[str, UsrpDevice], boxes: Mapping[str, UsrpBox]) -> None:
    """Make all boxes count from 0 at the same pulse, and verify that they do.

    A single one that is told the time, alone or at the other end of a MIMO cable, is told it at once.
    """
    told = list(_pulsed(devices, boxes).values())
    if len(told) == 1:
        told[0].set("time_now", told[0].time_at(0.0))
    elif not _have_one_time(told):
        _tell_at_a_pulse(told, lambda: told[0].time_at(0.0))
    require_one_time(devices, boxes)


def _pulsed(devices: Mapping[str, UsrpDevice], boxes: Mapping[str, UsrpBox]) -> dict[str, UsrpDevice]:
    """Boxes whose time does not come through a cable from another one."""
    return {name: device for name, device in devices.items() if boxes[name].time_source is not Source.MIMO}


def _tell_at_a_pulse(told: Sequence[UsrpDevice], next_pulse: Callable[[], Any], of: UsrpDevice | None = None) -> None:
    """Tell boxes, between two pulses of theirs or of the box `of`, what the time is at the next; returns after that."""
    for _ in range(_ATTEMPTS):
        _wait_for_pulse([of] if of is not None else told)
        started_s = time.monotonic()
        moment = next_pulse()
        for device in told:
            device.set("time_next_pps", moment)
        if time.monotonic() - started_s < _MOST_TELLING_S:
            _wait_for_pulse(told)
            return
    raise HardwareError(f"telling {len(told)} boxes the time takes longer than a second: is the network busy?")


def _have_one_time(devices: Sequence[UsrpDevice]) -> bool:
    """Whether all have counted the last pulse as the same tick, and have had one within the last second.

    Boxes that nobody has set agree on a tick with a probability of 1e-8.
    """
    pulses = {_last_pulse_s(device) for device in devices}
    return len(pulses) == 1 and all(0.0 < now_s(device) - max(pulses) < _A_SECOND_S for device in devices)


def join_time(name: str, devices: Mapping[str, UsrpDevice], boxes: Mapping[str, UsrpBox], apart_s: float = 0.0) -> None:
    """Give a box that was opened anew the time of the others, which get the same pulses, and verify that it has it.

    Where no other one can tell, it begins a new time, and those that come after it join that.
    """
    pulsed = _pulsed(devices, boxes)
    device = pulsed.pop(name, None)
    reference = next(iter(pulsed.values()), None)
    if device is not None and reference is None:
        device.set("time_now", device.time_at(0.0))
    elif device is not None and reference is not None:

        def next_pulse() -> Any:
            last = reference.get("time_last_pps")
            return reference.uhd.types.TimeSpec(last.get_full_secs() + 1, last.get_frac_secs())

        _tell_at_a_pulse([device], next_pulse, reference)
    require_one_time(devices, boxes, apart_s)


def require_one_time(devices: Mapping[str, UsrpDevice], boxes: Mapping[str, UsrpBox], apart_s: float = 0.0) -> None:
    """Raise `LockLostError` unless all boxes have counted the last pulse as the same moment, and are at the same time.

    The first is exact, and says nothing of boxes that get pulses of their own: each counts whole seconds. The second
    tells those, as far as they are further apart than a question takes. apart_s: by how much crystals of their own may
    have let them drift.
    """
    pulsed = _pulsed(devices, boxes)
    found = _last_pulses_s(pulsed)
    if found and max(found.values()) - min(found.values()) > apart_s:
        listed = ", ".join(f"{name} {seconds:.9f} s" for name, seconds in found.items())
        raise LockLostError(f"boxes do not have one time: the last pulse was at {listed}; do all get the same one?")
    leader = next(iter(pulsed.values()), None)
    for name, device in devices.items():
        if leader is not None and device is not leader:
            what = "do both get the same pulses?" if name in pulsed else "is the MIMO cable connected?"
            _require_same_time(device, leader, apart_s, what)


def with_another_time(
    devices: Mapping[str, UsrpDevice], boxes: Mapping[str, UsrpBox], apart_s: float = 0.0
) -> list[str]:
    """Boxes that have counted the last pulse as another moment than most others. apart_s: see `require_one_time`.

    Where as many say one thing as another, those with the later time are right: who was switched off began again at 0.
    """
    found = _last_pulses_s(_pulsed(devices, boxes))
    times = list(found.values())
    usual = max(times, key=lambda one: (sum(abs(other - one) <= apart_s for other in times), one), default=0.0)
    return [name for name, seconds in found.items() if abs(seconds - usual) > apart_s]


def _last_pulses_s(devices: Mapping[str, UsrpDevice]) -> dict[str, float]:
    """When the last pulse was, by each box. One may come while they are asked: then asking again helps."""
    found: dict[str, float] = {}
    for _ in range(_ATTEMPTS):
        found = {name: _last_pulse_s(device) for name, device in devices.items()}
        if len(set(found.values())) <= 1:
            break
    return found


def _require_same_time(device: UsrpDevice, leader: UsrpDevice, apart_s: float, what_to_check: str) -> None:
    """A box's time lies between two looks at the leader's. A MIMO cable brings it every 0.6 ms."""
    for _ in range(_ATTEMPTS):
        before, own, after = now_s(leader), now_s(device), now_s(leader)
        if before - apart_s - _STEP_S <= own <= after + apart_s + _STEP_S:
            return
        time.sleep(_LOOK_S)
    raise LockLostError(f"{device.name} is at {own:.6f} s and {leader.name} at {before:.6f} s: {what_to_check}")


def tune_together(devices: Mapping[str, UsrpDevice], center_hz: float, lead_s: float) -> None:
    """Tune all boxes in both directions at one tick, so that their phases keep their relation from tuning to tuning.

    A box that is told too late tunes when it is told, and says nothing: then all are told again, further ahead.
    """
    for _ in range(_ATTEMPTS):
        moment_s = max(now_s(device) for device in devices.values()) + lead_s
        started_s = time.monotonic()
        for device in devices.values():
            device.ask("tuning", _tuning(device, center_hz, center_hz, moment_s))
        if time.monotonic() - started_s < lead_s:
            return
        lead_s *= 2
    raise HardwareError(
        f"telling {len(devices)} boxes to tune takes longer than {lead_s / 2:g} s: is the network busy?"
    )


def tune(device: UsrpDevice, tx_center_hz: float, rx_center_hz: float) -> None:
    """Tune one box, at once: there is no relation to the phases of others that could be kept."""
    device.ask("tuning", _tuning(device, tx_center_hz, rx_center_hz, None))


def ticks_since_pulse(device: UsrpDevice, tick_rate_hz: float) -> tuple[int, int]:
    """The time of a box in ticks, and how long before that its last pulse came; `LockLostError` without one."""
    for _ in range(_ATTEMPTS):
        pulse, now, again = (device.get(name) for name in ("time_last_pps", "time_now", "time_last_pps"))
        ticks, since = now.to_ticks(tick_rate_hz), now.to_ticks(tick_rate_hz) - pulse.to_ticks(tick_rate_hz)
        # A pulse may come while it is asked.
        if pulse.to_ticks(tick_rate_hz) == again.to_ticks(tick_rate_hz) and 0 <= since <= tick_rate_hz * _A_SECOND_S:
            return int(ticks), int(since)
    raise LockLostError(f"{device.name}: no pulse per second came within a second; is PPS IN connected?")


def _tuning(
    device: UsrpDevice, tx_center_hz: float, rx_center_hz: float, moment_s: float | None
) -> Callable[[Any], None]:
    def call(usrp: Any) -> None:
        request = device.uhd.types.TuneRequest
        if moment_s is not None:
            usrp.set_command_time(device.uhd.types.TimeSpec(moment_s), 0)
        try:
            usrp.set_tx_freq(request(tx_center_hz), 0)
            usrp.set_rx_freq(request(rx_center_hz), 0)
        finally:
            usrp.clear_command_time(0)

    return call


def require_tuned(device: UsrpDevice) -> None:
    """Wait until both oscillators are locked; `LockLostError` where they do not become so."""
    deadline_s = time.monotonic() + LOCK_S
    while True:
        unlocked = _unlocked(device)
        if not unlocked:
            return
        if time.monotonic() > deadline_s:
            raise LockLostError(f"{device.name}: its {unlocked} oscillator does not lock")
        time.sleep(_LOOK_S)


def _unlocked(device: UsrpDevice) -> str:
    """Directions whose oscillator is not locked, as far as there are sensors; nothing where all are."""
    return " and ".join(direction for direction in ("tx", "rx") if device.sensor("lo_locked", direction) is False)


def _wait_for_pulse(devices: Sequence[UsrpDevice]) -> None:
    """Until every one has had a pulse since this call."""
    before = {device.name: _last_pulse_s(device) for device in devices}
    deadline_s = time.monotonic() + PULSE_S
    left = list(devices)
    while left:
        left = [device for device in left if _last_pulse_s(device) == before[device.name]]
        if left and time.monotonic() > deadline_s:
            names = ", ".join(device.name for device in left)
            raise LockLostError(f"{names}: no pulse per second came within {PULSE_S:g} s; is PPS IN connected?")
        time.sleep(_LOOK_S if left else 0.0)


def _last_pulse_s(device: UsrpDevice) -> float:
    return float(device.get("time_last_pps").get_real_secs())


def now_s(device: UsrpDevice) -> float:
    """The time of a box."""
    return float(device.get("time_now").get_real_secs())


def _what_to_check(box: UsrpBox) -> str:
    if Source.GPSDO in (box.clock_source, box.time_source):
        return "does its GPSDO see satellites?"
    return {
        Source.EXTERNAL: "is 10 MHz connected to REF IN, and strong enough?",
        Source.MIMO: "is the MIMO cable connected, and the other box on?",
    }.get(box.clock_source, "is it a working box?")
