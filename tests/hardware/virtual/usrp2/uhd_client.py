"""What the tests of virtual USRPs share: an air, boxes opened through libuhd, bursts and captures at their ticks."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.lab.file import parse_lab
from hardware.lab.model import Lab

# Read by libuhd when it is loaded: it is to be quiet.
os.environ.setdefault("UHD_LOG_CONSOLE_LEVEL", "fatal")
os.environ.setdefault("UHD_LOG_FASTPATH_DISABLE", "1")

TICK_RATE_HZ = 1e8
RATE_HZ = 1e6
CENTER_HZ = 2.45e9
Samples = NDArray[np.complex64]


def make_lab(clients: int = 1, **medium: object) -> Lab:
    """A server and clients at 1 MS/s: one static tap without noise unless said otherwise."""
    return parse_lab(
        {
            "lab": {
                "name": "virtual",
                "backend": "loopback",
                "sample_rate_hz": RATE_HZ,
                "center_hz": CENTER_HZ,
                "tx_gain_db": 0.0,
                "rx_gain_db": 0.0,
            },
            "limits": {"band_hz": [2.4e9, 2.5e9], "max_tx_gain_db": 0.0},
            "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": clients}],
            "medium": {"fading": "static"} | medium,
        },
        "test",
    )


@dataclass
class Box:
    """One or several boxes as one device, tuned and at the lab's rate."""

    usrp: Any

    def __post_init__(self) -> None:
        """Set it up."""
        import uhd

        self.uhd = uhd
        self.usrp.set_rx_rate(RATE_HZ)
        self.usrp.set_tx_rate(RATE_HZ)
        for channel in range(self.usrp.get_rx_num_channels()):
            self.usrp.set_rx_freq(uhd.types.TuneRequest(CENTER_HZ), channel)
            self.usrp.set_tx_freq(uhd.types.TuneRequest(CENTER_HZ), channel)
            self.usrp.set_tx_gain(31.5, channel)
            self.usrp.set_rx_gain(0.0, channel)
        self._rx: Any = None
        self._tx: Any = None

    def close(self) -> None:
        """Let go of it: libuhd ends the process where a box goes away before that."""
        self._rx = self._tx = self.usrp = None

    def now(self) -> int:
        """Ticks."""
        return int(self.usrp.get_time_now().to_ticks(TICK_RATE_HZ))

    @property
    def rx(self) -> Any:
        """Its receive stream."""
        if self._rx is None:
            arguments = self.uhd.usrp.StreamArgs("fc32", "sc16")
            arguments.channels = list(range(self.usrp.get_rx_num_channels()))
            self._rx = self.usrp.get_rx_stream(arguments)
        return self._rx

    @property
    def tx(self) -> Any:
        """Its transmit stream, which drops a late burst whole."""
        if self._tx is None:
            arguments = self.uhd.usrp.StreamArgs("fc32", "sc16")
            arguments.channels = list(range(self.usrp.get_tx_num_channels()))
            arguments.args = "underflow_policy=next_burst"
            self._tx = self.usrp.get_tx_stream(arguments)
        return self._tx

    def send(self, samples: Samples, ticks: int | None, *, end: bool = True) -> int:
        """A burst, at once where `ticks` is None."""
        metadata = self.uhd.types.TXMetadata()
        metadata.start_of_burst, metadata.end_of_burst = True, end
        metadata.has_time_spec = ticks is not None
        if ticks is not None:
            metadata.time_spec = self.uhd.types.TimeSpec.from_ticks(ticks, TICK_RATE_HZ)
        return int(self.tx.send(samples, metadata, 5.0))

    def event(self, timeout_s: float = 5.0) -> tuple[str, int]:
        """What the transmitter said next, and of which tick; empty where it said nothing."""
        message = self.uhd.types.TXAsyncMetadata()
        if not self.tx.recv_async_msg(message, timeout_s):
            return "", 0
        return _name(message.event_code), int(message.time_spec.to_ticks(TICK_RATE_HZ))

    def ask(self, count: int, ticks: int | None, mode: str = "num_done") -> None:
        """Issue a stream command, for now where `ticks` is None."""
        command = self.uhd.types.StreamCMD(getattr(self.uhd.types.StreamMode, mode))
        command.num_samps = count
        command.stream_now = ticks is None
        if ticks is not None:
            command.time_spec = self.uhd.types.TimeSpec.from_ticks(ticks, TICK_RATE_HZ)
        self.rx.issue_stream_cmd(command)

    def take(self, count: int, timeout_s: float = 5.0) -> tuple[Samples, int, str]:
        """What came of (channels, count) samples, the tick of the first, and what was wrong, "none" at best."""
        metadata = self.uhd.types.RXMetadata()
        channels = self.usrp.get_rx_num_channels()
        pieces: list[Samples] = []
        first, got, error = -1, 0, "none"
        while got < count and error == "none":
            block = np.zeros((channels, min(count - got, 4096)), np.complex64)
            came = self.rx.recv(block, metadata, timeout_s)
            error = _name(metadata.error_code)
            if error == "overflow" and metadata.out_of_sequence:
                error = "lost"
            if came and first < 0:
                first = int(metadata.time_spec.to_ticks(TICK_RATE_HZ))
            pieces.append(block[:, :came])
            got += came
        return np.concatenate(pieces, axis=1), first, error


def _name(code: Any) -> str:
    return str(code).rpartition(".")[2]


def open_box(*uris: str, arguments: str = "") -> Box:
    """The boxes at these addresses, in one device."""
    import uhd

    if len(uris) == 1:
        return Box(uhd.usrp.MultiUSRP(f"{uris[0]},{arguments}"))
    numbered = (uri.replace("addr=", f"addr{number}=") for number, uri in enumerate(uris))
    return Box(uhd.usrp.MultiUSRP(f"{','.join(numbered)},{arguments}"))
