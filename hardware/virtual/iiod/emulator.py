"""Listens for clients: one loopback address for each radio of a lab, one thread for each connection."""

import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from hardware.foundation.peers import peer_is_own
from hardware.lab.emulation import RadioStatus
from hardware.lab.model import Lab
from hardware.pluto.settings import IIOD_PORT
from hardware.radio.errors import HardwareError
from hardware.virtual.addresses import bases
from hardware.virtual.iiod.attributes import Device, context_xml
from hardware.virtual.iiod.chip.words import warm_up_words
from hardware.virtual.iiod.connection import Connection
from hardware.virtual.iiod.devices.pluto import devices
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.session import Session, TimeOuts
from hardware.virtual.iiod.virtual_lab import VirtualLab
from hardware.virtual.pace import Pace
from hardware.virtual.warm_up import warm_up

MOST_CONNECTIONS = 64
"""Of one radio at a time; further ones are closed at once."""


class _Port:
    """One radio and its clients."""

    def __init__(self, lab: VirtualLab, radio: VirtualRadio, listener: socket.socket) -> None:
        self.radio = radio
        self.listener = listener
        self.sessions: dict[threading.Thread, Connection] = {}
        self._lab = lab
        self._devices: Sequence[Device] = devices(lab, radio)
        self._time_outs = TimeOuts()
        attributes = {
            "hw_model": "Analog Devices PlutoSDR Rev.C (Z7010-AD9364)",
            "hw_model_variant": "1",
            "hw_serial": f"airdp-virtual-{radio.name}",
            "fw_version": "v0.38",
            "ad9361-phy,xo_correction": str(radio.chip.xo_correction_hz),
            "ad9361-phy,model": "ad9364",
            "local,kernel": "5.15.0-virtual",
            "airdp,virtual": lab.mode,
        }
        self._xml = context_xml(self._devices, attributes, f"virtual Pluto {radio.name} of the lab {lab.lab.name}")

    def accept(self) -> None:
        """Start a session for a client that is waiting."""
        try:
            sock, _ = self.listener.accept()
        except OSError:
            # It went away before it was let in.
            return
        # A thread leaves the list by itself: what is here is alive, or about to end.
        if len(self.sessions) >= MOST_CONNECTIONS or not peer_is_own(sock):
            sock.close()
            return
        connection = Connection(sock)
        session = Session(connection, self._lab, self.radio, self._devices, self._xml, self._time_outs)

        def serve() -> None:
            try:
                session.serve()
            finally:
                connection.close()
                self.sessions.pop(threading.current_thread(), None)

        thread = threading.Thread(target=serve, name=f"virtual-pluto-{self.radio.name}", daemon=True)
        self.sessions[thread] = connection
        thread.start()


class Emulator:
    """Virtual radios of a lab, reachable by any client of libiio as long as it is open.

    host_base: network address such as "127.20.0.0"; the radios get the addresses that follow it, in the lab's order.
    None takes a block of loopback addresses that is free. port: None is that of real ones. paced: time follows the wall
    clock, and buffers that are not served in time over- and underflow; otherwise time waits for them.
    """

    def __init__(
        self, lab: Lab, *, seed: int, host_base: str | None = None, port: int | None = None, paced: bool = False
    ) -> None:
        port = IIOD_PORT if port is None else port
        if not 1 <= port <= 65535:
            raise HardwareError(f"the port is {port}: expected 1 to 65535")
        warm_up(lab, seed)
        warm_up_words()
        self._virtual = VirtualLab(lab, seed, paced)
        self._stack = ExitStack()
        hosts, listeners = _listen(host_base, port, len(lab.radios), self._stack)
        suffix = "" if port == IIOD_PORT else f":{port}"
        self.uris = {radio.name: f"ip:{host}{suffix}" for radio, host in zip(lab.radios, hosts, strict=True)}
        self._ports = [
            _Port(self._virtual, radio, listener)
            for radio, listener in zip(self._virtual.radios.values(), listeners, strict=True)
        ]
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name="virtual-pluto-accept", daemon=True)
        self._pace = Pace(self._virtual) if paced else None
        self._closed = False

    def __enter__(self) -> Self:
        """Start serving."""
        if self._pace:
            self._pace.start()
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.close()

    def close(self) -> None:
        """End all connections and give all addresses back. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._wake_writer.send(b"x")
        if self._acceptor.ident:
            self._acceptor.join()
        self._stack.close()
        if self._pace:
            self._pace.stop()
        for thread, connection in [item for port in self._ports for item in list(port.sessions.items())]:
            connection.shut()
            thread.join()
        self._virtual.shut_down()
        self._wake_reader.close()
        self._wake_writer.close()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            for port in self._ports:
                selector.register(port.listener, selectors.EVENT_READ, port)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    key.data.accept()

    @property
    def mode(self) -> str:
        """What drives time: "lockstep" or "paced"."""
        return self._virtual.mode

    @property
    def try_with(self) -> str:
        """See `Emulation.try_with`."""
        return f"iio_info -u {next(iter(self.uris.values()))}"

    @property
    def slipped_s(self) -> float:
        """How far paced time has fallen behind the wall clock, for lack of speed."""
        return self._pace.slipped_s if self._pace else 0.0

    def status(self) -> list[RadioStatus]:
        """What each radio is doing now."""
        with self._virtual.turn():
            return [self._status(port) for port in self._ports]

    def _status(self, port: _Port) -> RadioStatus:
        radio = port.radio
        return RadioStatus(
            name=radio.name,
            uri=self.uris[radio.name],
            connections=len(port.sessions),
            rx_buffers=len(radio.rx),
            tx_buffers=int(radio.tx is not None),
            streamed_samples=radio.streamed_samples,
            overflows=radio.overflows,
            underflows=radio.underflows,
            counter=radio.counter,
            rate_hz=radio.chip.rate_hz,
        )


def _listen(host_base: str | None, port: int, count: int, stack: ExitStack) -> tuple[list[str], list[socket.socket]]:
    """Addresses and listening sockets for `count` radios, which the stack closes."""
    problem: OSError | None = None
    for base in bases(host_base):
        hosts = [str(base + number + 1) for number in range(count)]
        with ExitStack() as attempt:
            try:
                listeners = [attempt.enter_context(_listener(host, port)) for host in hosts]
            except OSError as error:
                problem = error
                continue
            stack.push(attempt.pop_all())
            return hosts, listeners
    raise HardwareError(f"cannot listen on port {port}: {problem}; choose another port or address")


def _listener(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections of an earlier emulator that linger are no obstacle; one that still listens is.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(MOST_CONNECTIONS)
    except OSError:
        sock.close()
        raise
    return sock
