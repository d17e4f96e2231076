"""Serves all radios of a lab: one loopback address for each, one thread for all datagrams, one for the wall clock."""

import selectors
import socket
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from hardware.lab.emulation import RadioStatus
from hardware.lab.model import Lab
from hardware.radio.errors import HardwareError
from hardware.virtual.addresses import bases
from hardware.virtual.pace import Pace
from hardware.virtual.usrp2.port import TX, Port
from hardware.virtual.usrp2.virtual_lab import VirtualLab
from hardware.virtual.usrp2.wire.batches import Inbox
from hardware.virtual.usrp2.wire.socket_room import SocketRoom
from hardware.virtual.warm_up import warm_up

# How often a client's socket is looked at while it is full, and everything else while nothing comes.
_GLANCE_S = 0.0005
_IDLE_S = 0.02


class Emulator:
    """Virtual USRPs of a lab, reachable by any client of libuhd as long as it is open.

    host_base: network address such as "127.20.0.0"; the radios get the addresses that follow it, in the lab's order.
    None takes a block of loopback addresses that is free. paced: time follows the wall clock, whoever is late.
    """

    def __init__(self, lab: Lab, *, seed: int, host_base: str | None = None, paced: bool = False) -> None:
        warm_up(lab, seed)
        self._virtual = VirtualLab(lab, seed, paced)
        self._stack = ExitStack()
        room = None
        if not paced:
            room = SocketRoom()
            self._stack.callback(room.close)
        self._ports = _open(self._virtual, host_base, room, self._stack)
        self.uris = {port.radio.name: f"addr={port.host}" for port in self._ports}
        self._inbox = Inbox()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        for port in self._ports:
            for number, sock in port.sockets.items():
                self._selector.register(sock, selectors.EVENT_READ, (port, number))
        self._virtual.take_waiting = self._take_waiting
        self._server = threading.Thread(target=self._serve, name="virtual-usrp", daemon=True)
        self._pace = Pace(self._virtual)
        self._closed = False

    def __enter__(self) -> Self:
        """Start serving."""
        self._pace.start()
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.close()

    def close(self) -> None:
        """Give all addresses back. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._server.ident:
            self._server.join()
        self._pace.stop()
        self._stack.close()
        self._virtual.shut_down()

    def _serve(self) -> None:
        while not self._closed:
            ready = self._selector.select(self._patience_s())
            with self._virtual.lock:
                self._take(ready)
                self._virtual.settle()
                self._virtual.go_on()
                self._tell_time()

    def _patience_s(self) -> float:
        """How long nothing may come before everything is looked at again."""
        if self._virtual.unfinished:
            return 0.0
        return _GLANCE_S if self._virtual.waits_for_room else _IDLE_S

    def _tell_time(self) -> None:
        now_s = time.monotonic()
        for port in self._ports:
            port.tell_time(now_s)

    def _take_waiting(self) -> None:
        """Take what has come already."""
        self._take(self._selector.select(0))

    def _take(self, ready: "list[tuple[selectors.SelectorKey, int]]") -> None:
        # A command that was sent before samples is obeyed before them.
        for key, _ in sorted(ready, key=lambda item: bool(item[0].data[1] == TX)):
            port, number = key.data
            port.serve(number, self._inbox)

    @property
    def sockets(self) -> list[socket.socket]:
        """See `ServesAtSockets`."""
        return [sock for port in self._ports for sock in port.sockets.values()]

    @property
    def mode(self) -> str:
        """What drives time: "lockstep" or "paced"."""
        return self._virtual.mode

    @property
    def try_with(self) -> str:
        """See `Emulation.try_with`."""
        return f"uhd_usrp_probe --args {next(iter(self.uris.values()))}"

    @property
    def slipped_s(self) -> float:
        """How far paced time has fallen behind the wall clock, for lack of speed."""
        return self._pace.slipped_s if self._virtual.paced else 0.0

    def status(self) -> list[RadioStatus]:
        """What each radio is doing now."""
        with self._virtual.lock:
            return [_status(port) for port in self._ports]


def _status(port: Port) -> RadioStatus:
    radio = port.radio
    return RadioStatus(
        name=radio.name,
        uri=f"addr={port.host}",
        connections=port.clients,
        rx_buffers=sum(stream.busy for stream in radio.rx),
        tx_buffers=int(radio.tx.busy),
        streamed_samples=radio.streamed_samples,
        overflows=sum(stream.errors for stream in radio.rx),
        underflows=radio.tx.underflows + radio.tx.late + radio.tx.out_of_sequence,
        counter=radio.counter,
        rate_hz=radio.rate_hz,
    )


def _open(lab: VirtualLab, host_base: str | None, room: SocketRoom | None, stack: ExitStack) -> list[Port]:
    """The ports of all radios, which the stack closes."""
    problem: OSError | None = None
    for base in bases(host_base):
        with ExitStack() as attempt:
            try:
                ports = [
                    Port(str(base + number), lab, radio, f"A1D{number:05d}", room, attempt)
                    for number, radio in enumerate(lab.radios.values(), start=1)
                ]
            except OSError as error:
                problem = error
                continue
            stack.push(attempt.pop_all())
            return ports
    raise HardwareError(f"cannot listen for clients of USRPs: {problem}; choose another address")
