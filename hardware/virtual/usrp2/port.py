"""The sockets of one radio: what arrives goes to the radio, what the radio has to say goes to who asked for it."""

import socket
from collections.abc import Callable
from contextlib import ExitStack

from hardware.foundation.peers import Senders
from hardware.virtual.usrp2.device.eeprom import memories
from hardware.virtual.usrp2.radio import UNLIMITED, Client, VirtualUsrp
from hardware.virtual.usrp2.rx_stream import Words
from hardware.virtual.usrp2.side_channel import PORT as SIDE_CHANNEL
from hardware.virtual.usrp2.side_channel import SideChannel
from hardware.virtual.usrp2.virtual_lab import VirtualLab
from hardware.virtual.usrp2.wire.batches import Address, Inbox, send_all, send_rows
from hardware.virtual.usrp2.wire.control import Control
from hardware.virtual.usrp2.wire.socket_room import SocketRoom
from hardware.virtual.usrp2.wire.vrt import Command, TxPacket, command_answer, parse_command, parse_tx

CONTROL, RX, TX, COMMANDS, GPS = 49152, (49156, 49158), 49157, 49159, 49172
"""UDP ports; none of them can be chosen."""
PORTS = (CONTROL, *RX, TX, COMMANDS, GPS, SIDE_CHANNEL)
_RECEIVE_BUFFER = 4 << 20
_REPEAT_S = 1.0
# What a datagram occupies in a socket's buffer, at most.
_DATAGRAM_OVERHEAD = 1024


class Port:
    """One radio at an address of its own. room: how full sockets are; None where nobody waits for them."""

    def __init__(
        self, host: str, lab: VirtualLab, radio: VirtualUsrp, serial: str, room: SocketRoom | None, stack: ExitStack
    ) -> None:
        self.host, self.radio = host, radio
        self._lab, self._room = lab, room
        self.sockets = {port: stack.enter_context(_socket(host, port)) for port in PORTS}
        fitted = radio.gpsdo is not None
        self._control = Control(host, radio.bus, memories(host, serial, radio.name, gpsdo=fitted), gps=fitted)
        self._side_channel = SideChannel(lab, radio)
        self._peers: dict[int, Address] = {}
        self._senders = Senders()
        self._told_second, self._told_at_s = -1, 0.0
        self._handlers: dict[int, Callable[[int, memoryview, Address], None]] = {
            CONTROL: self._on_control,
            RX[0]: self._on_rx,
            RX[1]: self._on_rx,
            TX: self._on_tx,
            COMMANDS: self._on_command,
            GPS: self._on_gps,
            SIDE_CHANNEL: self._on_side_channel,
        }
        radio.client = Client(self._send_packets, self._send_complaint, self._send_report, self._answer, self._rx_room)

    @property
    def clients(self) -> int:
        """How many have asked for something, by address."""
        return len({host for host, _ in self._peers.values()})

    def serve(self, port: int, inbox: Inbox) -> None:
        """Take what is there at a port, but for what other users of the machine have sent."""
        for datagram, sender in inbox.receive(self.sockets[port]):
            if (not self.radio.frozen or port == SIDE_CHANNEL) and self._senders.is_own(sender):
                self._handlers[port](port, datagram, sender)

    def _on_control(self, port: int, datagram: memoryview, sender: Address) -> None:
        answer = self._control.answer(datagram)
        if answer is not None:
            send_all(self.sockets[port], [answer], sender)

    def _on_rx(self, port: int, datagram: memoryview, sender: Address) -> None:
        """A header of zero tells where samples are to go."""
        if len(datagram) >= 4 and not any(datagram[:4]):
            self._peers[port] = sender

    def _on_tx(self, port: int, datagram: memoryview, sender: Address) -> None:
        self._peers[port] = sender
        packet = parse_tx(datagram)
        if packet is not None:
            # The datagram's memory is used again.
            payload = memoryview(bytes(packet.payload))
            self.radio.tx.push(
                TxPacket(
                    packet.sequence, packet.counter, packet.ticks, packet.start_of_burst, packet.end_of_burst, payload
                )
            )
            self._lab.heard()

    def _on_command(self, port: int, datagram: memoryview, sender: Address) -> None:
        command = parse_command(datagram)
        if command is not None:
            self._peers[port] = sender
            self.radio.bus.order(command)
            self._lab.heard()

    def _on_gps(self, port: int, datagram: memoryview, sender: Address) -> None:
        """A serial port: answers and what is said unasked go to who wrote last, an empty line being enough."""
        if self.radio.gpsdo is not None:
            self._peers[port] = sender
            send_all(self.sockets[port], self.radio.gpsdo.answer(bytes(datagram)), sender)

    def tell_time(self, now_s: float) -> None:
        """Let a GPSDO say what it says after each pulse, and again where time stands still. now_s: of any clock."""
        gpsdo, peer = self.radio.gpsdo, self._peers.get(GPS)
        if gpsdo is None or peer is None or self.radio.frozen:
            return
        second = self.radio.clock.second
        if second != self._told_second or now_s - self._told_at_s > _REPEAT_S:
            self._told_second, self._told_at_s = second, now_s
            send_all(self.sockets[GPS], gpsdo.sentences(second), peer)

    def _on_side_channel(self, port: int, datagram: memoryview, sender: Address) -> None:
        send_all(self.sockets[port], [self._side_channel.answer(datagram)], sender)

    def _answer(self, command: Command, value: int) -> None:
        self._send(COMMANDS, command_answer(command, value))

    def _send(self, port: int, message: bytes) -> None:
        peer = self._peers.get(port)
        if peer is not None:
            send_all(self.sockets[port], [message], peer)

    def _send_packets(self, number: int, packets: Words) -> None:
        peer = self._peers.get(RX[number])
        if peer is not None:
            send_rows(self.sockets[RX[number]], packets, peer)

    def _send_complaint(self, number: int, message: bytes) -> None:
        self._send(RX[number], message)

    def _send_report(self, message: bytes) -> None:
        self._send(TX, message)

    def _rx_room(self, number: int) -> int:
        """Samples that the client's socket has room for."""
        peer = self._peers.get(RX[number])
        if self._room is None or peer is None:
            return UNLIMITED
        free = self._room.free_bytes((self.host, RX[number]), peer)
        if free is None:
            # Nobody is there: nothing can be lost.
            return UNLIMITED
        stream = self.radio.rx[number]
        datagrams = free // (stream.datagram_bytes + _DATAGRAM_OVERHEAD)
        return datagrams * stream.packet_samples


def _socket(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
