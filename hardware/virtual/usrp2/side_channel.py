"""What can be asked of and done to a virtual USRP that no real one has: its state, faults, the fading of the air.

A datagram of JSON to one more port: {"do": {order: value, ...}}, and with "at": ticks the orders are carried out at
that time of the box. The answer is the state of the box. An order that there is not, or a value that it cannot have,
changes nothing and is answered with {"error": ...}.
"""

import json
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hardware.radio.errors import HardwareError
from hardware.virtual.usrp2.device.registers import TICKS_PER_S
from hardware.virtual.usrp2.radio import VirtualUsrp
from hardware.virtual.usrp2.virtual_lab import VirtualLab

PORT = 49190
"""UDP, at the address of the box."""
_MOST = 1_000_000_000
_LAST_TICK = (1 << 63) - 1
_ANSWER_S = 2.0
_TRIES = 5


class SideChannel:
    """Of one box."""

    def __init__(self, lab: VirtualLab, radio: VirtualUsrp) -> None:
        self._lab, self._radio = lab, radio
        self._orders: dict[str, Callable[[int], None]] = {
            "block": lab.new_block,
            "lose_rx": self._lose_rx,
            "lose_tx": self._lose_tx,
            "overflow": self._overflow,
            "break_chain": self._break_chain,
            "starve": self._starve,
            "late_rx": self._late_rx,
            "late_tx": self._late_tx,
            "lo_locked": self._lo_locked,
            "ref_locked": self._ref_locked,
            "pps": self._pps,
            "pulse_delay": self._pulse_delay,
            "mimo": self._mimo,
            "eager": self._eager,
            "frozen": self._frozen,
            "vanished": self._vanished,
        }
        if radio.gpsdo is not None:
            self._orders["gps_locked"] = partial(setattr, radio.gpsdo, "locked")

    def answer(self, datagram: memoryview) -> bytes:
        """To a request, whatever it is."""
        try:
            request = json.loads(bytes(datagram))
            if not isinstance(request, dict):
                raise ValueError('expected {"do": {order: value}}')
            self._carry_out(self._checked(request.get("do", {})), request.get("at"))
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": str(error)[:200]}).encode()
        return json.dumps(self._radio.state() | {"block": self._lab.block, "mode": self._lab.mode}).encode()

    def _carry_out(self, orders: Mapping[str, int], at: object) -> None:
        for name, value in orders.items():
            if at is None:
                self._orders[name](value)
            elif isinstance(at, int) and 0 <= at <= _LAST_TICK:
                self._radio.agenda.add(at, partial(self._orders[name], value))
            else:
                raise ValueError(f"at is {at!r}: expected ticks")

    def _checked(self, orders: object) -> Mapping[str, int]:
        if not isinstance(orders, dict):
            raise ValueError('expected {"do": {order: value}}')
        for name, value in orders.items():
            if name not in self._orders:
                raise ValueError(f"there is no order {name!r}: there are {', '.join(self._orders)}")
            if not isinstance(value, int) or not 0 <= value <= _MOST:
                raise ValueError(f"{name} is {value!r}: expected a whole number, or true or false")
        return orders

    def _lose_rx(self, packets: int) -> None:
        for stream in self._radio.rx:
            stream.packets_to_lose = packets

    def _lose_tx(self, packets: int) -> None:
        self._radio.tx.packets_to_lose = packets

    def _overflow(self, now: int) -> None:
        for stream in self._radio.rx:
            if now:
                stream.overflow()

    def _break_chain(self, now: int) -> None:
        for stream in self._radio.rx:
            if now:
                stream.break_chain()

    def _starve(self, now: int) -> None:
        if now:
            self._radio.tx.starve()

    def _late_rx(self, commands: int) -> None:
        for stream in self._radio.rx:
            stream.commands_to_miss = commands

    def _late_tx(self, bursts: int) -> None:
        self._radio.tx.packets_to_miss = bursts

    def _lo_locked(self, locked: int) -> None:
        self._radio.bus.board.locked = bool(locked)

    def _ref_locked(self, locked: int) -> None:
        self._radio.bus.reference_locked = bool(locked)

    def _pps(self, connected: int) -> None:
        self._radio.clock.has_pulse = bool(connected)

    def _pulse_delay(self, ticks: int) -> None:
        self._radio.clock.pulse_delay = ticks % TICKS_PER_S

    def _mimo(self, connected: int) -> None:
        self._radio.clock.cabled = bool(connected)

    def _eager(self, eager: int) -> None:
        self._radio.eager = bool(eager)

    def _frozen(self, frozen: int) -> None:
        self._radio.frozen = bool(frozen)

    def _vanished(self, off: int) -> None:
        if off:
            self._radio.switch_off()
        self._radio.frozen = bool(off)


def ask(uri: str, *, at: int | None = None, **orders: int) -> dict[str, Any]:
    """Carry out orders at the box `uri` ("addr=…"), now or at a tick of its time, and return its state.

    block: of the air's fading, everywhere. lose_rx, lose_tx: so many packets that come next are lost. overflow,
    break_chain: of what is being received. starve: the burst under way gets no more samples. late_rx, late_tx: so many
    timed commands or bursts that come next count as late. lo_locked, ref_locked, pps, mimo, gps_locked where the box
    has a GPSDO: what is there.
    pulse_delay: ticks by which its pulses come later than those of other boxes. eager: in
    lockstep, time runs as fast as its client reads. frozen: answers nothing and sends nothing, for as long. vanished:
    switched off, and all settings gone.
    """
    host = uri.removeprefix("addr=")
    request = json.dumps({"do": orders} | ({} if at is None else {"at": at})).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, PORT))
        sock.settimeout(_ANSWER_S)
        for _ in range(_TRIES):
            try:
                sock.send(request)
                state = json.loads(sock.recv(65536))
            except TimeoutError:
                continue
            except OSError as error:
                raise HardwareError(f"there is no virtual USRP at {host}: {error}") from error
            if "error" in state:
                raise HardwareError(f"the virtual USRP at {host} refuses {orders}: {state['error']}")
            return dict(state)
    raise HardwareError(f"the virtual USRP at {host} does not answer")
