"""All flowgraphs of a lab, each in a process of its own: started together, and together again when one has ended.

Their streams begin together and are never picked up in the middle: with one of them gone, what lies in the queues of
the others belongs to a time that nobody can tell any more.
"""

import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import zmq
from numpy.typing import NDArray

from flowgraphs.build import build
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import FlowgraphProcess
from hardware.errors import HardwareError
from hardware.gnuradio_control import FlowgraphControl
from hardware.gnuradio_port import Demand, FlowgraphRxPort, FlowgraphTxPort
from hardware.gnuradio_settings import CAPABILITIES, Device
from hardware.lab import Lab, LabRadio, Role
from hardware.settings import RadioSettings
from hardware.streams import Purpose, Streams
from phy.impairments import apply_taps, fractional_delay

AIR = "air"
_GRAPHS = {Role.PS: "ps_rx", Role.CLIENT: "client_tx", Role.JAMMER: "jammer_tx"}
_LOCALHOST = "127.0.0.1"
_START_S = 60.0
_HIGH_WATER_MARK = 4
# Messages that sockets and flowgraphs can hold between a host and a device, and some for the device itself.
_QUEUED_MESSAGES = 16
# Of a link whose ends are tuned to different bands.
_DEAF_DB = -400.0


class Member(Protocol):
    """Somebody whose streams pass the flowgraphs."""

    name: str

    @property
    def stands_still(self) -> bool:
        """Whether its stream has ended by itself."""
        ...

    def begin_again(self) -> None:
        """All flowgraphs are new: so must its stream be."""
        ...


class FlowgraphBench:
    """The flowgraphs of `lab`. seed: of the simulated air.

    generation: grows with each start; what was set before must be set again.
    """

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.generation = lab, 0
        self.members: list[Member] = []
        self._streams = Streams(seed)
        self._block = 0
        self._settings = {radio.name: radio.settings for radio in lab.radios}
        self._context = zmq.Context()
        self._running = ExitStack()
        self._processes: dict[str, FlowgraphProcess] = {}
        self._controls: dict[str, FlowgraphControl] = {}
        self._folder = Path()
        self._demand: Demand | None = None

    @property
    def simulated(self) -> bool:
        """Whether the air is a flowgraph too."""
        return self.lab.gnuradio.device is Device.ZEROMQ

    def __enter__(self) -> Self:
        """All flowgraphs run."""
        try:
            self.start()
        except BaseException:
            self._context.destroy(linger=0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """None does any more."""
        self.stop()
        self._context.destroy(linger=0)

    def start(self) -> None:
        """Start all flowgraphs and wait until they answer."""
        self.generation += 1
        self._demand = Demand(self.lab.gnuradio.margin_samples) if self.simulated else None
        try:
            self._folder = Path(self._running.enter_context(tempfile.TemporaryDirectory(prefix="airdp-")))
            for radio in self.lab.radios:
                self._launch(radio.name, _GRAPHS[radio.role], self._radio_parameters(radio))
            if self.simulated:
                self._launch(AIR, AIR, self._air_parameters(), transmitters=len(self._transmitters()))
            for process in self._processes.values():
                process.wait_until_ready(_START_S)
        except FlowgraphError as error:
            self.stop()
            raise HardwareError(f"{self.lab.source}: {error}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all flowgraphs, at once: one that is frozen takes its time. A second call does nothing."""
        processes, self._processes, self._controls = list(self._processes.values()), {}, {}
        if processes:
            with ThreadPoolExecutor(len(processes)) as threads:
                list(threads.map(FlowgraphProcess.stop, processes))
        self._running.close()

    def repair(self) -> None:
        """Start all flowgraphs anew, with the air as it was, where there is any trouble."""
        if self.trouble():
            self._restart()

    def _restart(self) -> None:
        self.stop()
        self.start()
        for member in self.members:
            member.begin_again()

    def ended(self) -> str:
        """Which flowgraph has ended or does not answer, and why; nothing while all run."""
        for name, process in self._processes.items():
            if not process.alive:
                return f"the flowgraph of '{name}' has ended: {process.reason() or 'it says nothing'}"
            if self._controls[name].broken:
                return f"'{name}': {self._controls[name].broken}"
        return "" if self._processes else "the flowgraphs have ended"

    def trouble(self) -> str:
        """The same, and which stream stands still: whoever sends cannot tell any more what became of it."""
        still = (f"the stream of '{member.name}' has ended" for member in self.members if member.stands_still)
        return self.ended() or next(still, "")

    def control(self, name: str) -> FlowgraphControl:
        """The parameters of a radio's flowgraph, or of the air's."""
        if name not in self._controls:
            raise HardwareError(f"the flowgraph of '{name}' does not run")
        return self._controls[name]

    def new_block(self, block: int) -> None:
        """Give all links the taps of a fading block. It is the first thing that is done after something broke."""
        self._block = block
        self.repair()
        if self.simulated:
            control = self.control(AIR)
            for number, radio in enumerate(self._transmitters(), start=1):
                control.set(f"taps_{number}", self._link(radio)["taps"])

    def retune(self, name: str, settings: RadioSettings) -> None:
        """Let the air know what a radio is tuned to: what differs from the server's frequency is heard beside it.

        All flowgraphs are started anew where that changes: the oscillator in GNU Radio's channel model is up to a
        buffer ahead of the samples that it turns, and nobody could tell from which one on.
        """
        before = [self._tuning(radio) for radio in self._transmitters()]
        self._settings[name] = settings
        if self.simulated and before != [self._tuning(radio) for radio in self._transmitters()]:
            self._restart()

    def tx_port(self, name: str, rate_hz: float, timeout_s: float) -> FlowgraphTxPort:
        """Where a radio's samples go."""
        socket_ = self._socket(zmq.PUSH)
        socket_.bind(self._address(name, "in"))
        return FlowgraphTxPort(name, socket_, **self._common(rate_hz, timeout_s))

    def rx_port(self, name: str, rate_hz: float, timeout_s: float, first_sample: int) -> FlowgraphRxPort:
        """Where a radio's samples come from."""
        socket_ = self._socket(zmq.PULL)
        socket_.connect(self._address(name, "out"))
        return FlowgraphRxPort(name, socket_, first_sample, **self._common(rate_hz, timeout_s))

    @property
    def queue_samples(self) -> int:
        """The most that lies between the host and an antenna."""
        settings = self.lab.gnuradio
        if self.simulated:
            return settings.margin_samples + 2 * settings.buffer_samples
        return _QUEUED_MESSAGES * settings.buffer_samples

    def _common(self, rate_hz: float, timeout_s: float) -> dict[str, Any]:
        return {
            "block_samples": self.lab.gnuradio.buffer_samples,
            "rate_hz": rate_hz,
            "timeout_s": timeout_s,
            "demand": self._demand,
            "queue_samples": self.queue_samples,
            "ended": self.ended,
        }

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        made.set_hwm(_HIGH_WATER_MARK)
        return made

    def _launch(self, name: str, graph: str, parameters: dict[str, str], *, transmitters: int | None = None) -> None:
        choices = {} if name == AIR else {"device": self.lab.gnuradio.device.value}
        port = _free_port()
        parameters |= {"control_address": _LOCALHOST, "control_port": str(port)}
        script = build(graph, choices, transmitters)
        process = FlowgraphProcess(script, parameters)
        process.start()
        self._processes[name] = process
        control = FlowgraphControl(name, f"http://{_LOCALHOST}:{port}/", self.lab.timeout_s)
        self._running.callback(control.close)
        self._controls[name] = control

    def _address(self, name: str, end: str) -> str:
        # Numbers, because a path to a socket has room for about a hundred characters.
        index = next((index for index, radio in enumerate(self.lab.radios) if radio.name == name), AIR)
        return f"ipc://{self._folder}/{index}.{end}"

    def _radio_parameters(self, radio: LabRadio) -> dict[str, str]:
        settings = radio.settings
        receives = radio.role is Role.PS
        parameters = {
            "samples_in": self._address(AIR if receives else radio.name, "out" if receives else "in"),
            "samples_out": self._address(radio.name, "out"),
            "sample_rate_hz": repr(settings.sample_rate_hz),
            "center_hz": repr(settings.rx_center_hz if receives else settings.tx_center_hz),
            "bandwidth_hz": repr(settings.bandwidth_hz),
        }
        if receives:
            parameters |= {"rx_gain_db": repr(settings.rx_gain_db), "monitor_out": self._monitor_address()}
        else:
            # Parked until it is configured.
            parameters["tx_gain_db"] = repr(CAPABILITIES[self.lab.gnuradio.device].tx_gain_db[0])
        if self.lab.gnuradio.device is Device.PLUTO:
            parameters["pluto_uri"] = radio.address
        if self.lab.gnuradio.device is Device.UHD:
            parameters["usrp_args"] = radio.address
        return parameters

    def _monitor_address(self) -> str:
        return self.lab.gnuradio.monitor or f"ipc://{self._folder}/monitor"

    def _air_parameters(self) -> dict[str, str]:
        noise = self.lab.medium.front_end_of(self.lab.ps.name, self._streams).noise_var_complex
        seed = int(self._streams.generator(Purpose.NOISE, self.lab.ps.name, self.generation).integers(1, 1 << 30))
        parameters = {
            "sample_rate_hz": repr(self.lab.sample_rate_hz),
            "samples_out": self._address(AIR, "out"),
            "noise_var_complex": repr(noise),
            "noise_seed": str(seed),
        }
        for number, radio in enumerate(self._transmitters(), start=1):
            parameters[f"samples_in_{number}"] = self._address(radio.name, "out")
            parameters |= {f"{key}_{number}": value for key, value in self._link(radio).items()}
            parameters |= {f"{key}_{number}": repr(value) for key, value in self._tuning(radio).items()}
        return parameters

    def _transmitters(self) -> list[LabRadio]:
        return [radio for radio in self.lab.radios if radio.role is not Role.PS]

    def _tuning(self, radio: LabRadio) -> dict[str, float]:
        """Offset between a radio's carrier and the server's, and whether the server hears it at all."""
        server = self._settings[self.lab.ps.name]
        offset_hz = self._settings[radio.name].tx_center_hz - server.rx_center_hz
        heard = abs(offset_hz) <= server.bandwidth_hz / 2
        return {"cfo_hz": offset_hz if heard else 0.0, "gain_db": 0.0 if heard else _DEAF_DB}

    def _link(self, radio: LabRadio) -> dict[str, str]:
        """Delay and taps of a radio's link to the server, as the loopback draws them in the current block."""
        link = self.lab.medium.link_of(radio.name, self._streams)
        rng = self._streams.generator(Purpose.FADING, radio.name, self.lab.ps.name, self._block)
        whole = int(link.delay_samples)
        taps = _delayed(link.fading.taps(self._block, rng), link.delay_samples - whole)
        return {"delay_samples": str(whole), "taps": ",".join(str(complex(tap)) for tap in taps)}


def _delayed(taps: NDArray[np.complex128], fraction: float) -> NDArray[np.complex64]:
    """Taps after a delay by a part of a sample, which begins with the filter's look-ahead."""
    impulse = np.ones(1, np.complex64)
    return apply_taps(fractional_delay(impulse, fraction)[0], taps.astype(np.complex64))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOCALHOST, 0))
        return int(found.getsockname()[1])
