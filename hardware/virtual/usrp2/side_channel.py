"""What can be asked of and done to a virtual USRP that no real one has: its state, faults, the fading of the air.

A datagram of JSON to one more port: {"do": {order: value, ...}}. The answer is the state of the box after that.
An order that there is not, or a value that it cannot have, changes nothing and is answered with {"error": ...}.
"""

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from hardware.radio.errors import HardwareError
from hardware.virtual.usrp2.radio import VirtualUsrp
from hardware.virtual.usrp2.virtual_lab import VirtualLab

PORT = 49190
"""UDP, at the address of the box."""
_MOST = 1_000_000_000
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
            "late_rx": self._late_rx,
            "late_tx": self._late_tx,
            "lo_locked": self._lo_locked,
            "ref_locked": self._ref_locked,
            "pps": self._pps,
            "frozen": self._frozen,
            "vanished": self._vanished,
        }

    def answer(self, datagram: memoryview) -> bytes:
        """To a request, whatever it is."""
        try:
            request = json.loads(bytes(datagram))
            orders = request.get("do", {}) if isinstance(request, dict) else None
            for name, value in self._checked(orders).items():
                self._orders[name](value)
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": str(error)[:200]}).encode()
        return json.dumps(self._radio.state() | {"block": self._lab.block, "mode": self._lab.mode}).encode()

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

    def _late_rx(self, commands: int) -> None:
        for stream in self._radio.rx:
            stream.commands_to_miss = commands

    def _late_tx(self, bursts: int) -> None:
        self._radio.tx.packets_to_miss = bursts

    def _lo_locked(self, locked: int) -> None:
        self._radio.board.locked = bool(locked)

    def _ref_locked(self, locked: int) -> None:
        self._radio.reference_locked = bool(locked)

    def _pps(self, connected: int) -> None:
        self._radio.clock.has_pulse = bool(connected)

    def _frozen(self, frozen: int) -> None:
        self._radio.frozen = bool(frozen)

    def _vanished(self, off: int) -> None:
        if off:
            self._radio.switch_off()
        self._radio.frozen = bool(off)


def ask(uri: str, **orders: int) -> dict[str, Any]:
    """Carry out orders at the box `uri` ("addr=…"), and return its state. See `SideChannel` for orders.

    block: of the air's fading, everywhere. lose_rx, lose_tx: so many packets that come next are lost. overflow: now.
    late_rx, late_tx: so many timed commands or bursts that come next count as late. lo_locked, ref_locked, pps: what
    is there. frozen: answers nothing and sends nothing, for as long. vanished: switched off, and all settings gone.
    """
    host = uri.removeprefix("addr=")
    request = json.dumps({"do": orders}).encode()
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
