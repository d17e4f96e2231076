"""All flowgraphs of a lab, each in a process of its own: started together, and together again when one has ended.

Their streams begin together and are never picked up in the middle: with one of them gone, what lies in the queues of
the others belongs to a time that nobody can tell any more.
"""

import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import zmq

from flowgraphs.build import build
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import FlowgraphProcess
from hardware.foundation.scratch import scratch_folder
from hardware.gnuradio.control import FlowgraphControl
from hardware.gnuradio.flowgraph_air import AIR, FlowgraphAir
from hardware.gnuradio.port import Demand, FlowgraphRxPort, FlowgraphTxPort
from hardware.gnuradio.settings import CAPABILITIES, Device, gnuradio_of
from hardware.lab.model import Lab, LabRadio, Role
from hardware.radio.errors import HardwareError
from hardware.radio.settings import RadioSettings

_GRAPHS = {Role.PS: "ps_rx", Role.CLIENT: "client_tx", Role.JAMMER: "jammer_tx"}
_LOCALHOST = "127.0.0.1"
_START_S = 60.0
_HIGH_WATER_MARK = 4
# Messages that sockets and flowgraphs can hold between a host and a device, and some for the device itself.
_QUEUED_MESSAGES = 16
# What libuhd says where a box has not answered in time, and how often boxes are asked in all.
_NO_ANSWER = ("timeout", "timed out", "no devices found")
_USRP_STARTS = 3
# Of its own that a USRP has besides: a megabyte of 32 bits each.
_USRP_QUEUE_SAMPLES = 1 << 18
# Descriptors of a process whatever the lab, and for each of its radios: with five radios 40 were too few and 64 enough.
_OPEN_FILES, _OPEN_FILES_PER_RADIO = 34, 6


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


class FlowgraphProcesses:
    """The flowgraphs of `lab`. seed: of the simulated air.

    generation: grows with each start; what was set before must be set again.
    """

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.settings, self.generation = lab, gnuradio_of(lab), 0
        self.members: list[Member] = []
        self._air = FlowgraphAir(lab, seed) if self.settings.simulated else None
        self._context = zmq.Context()
        self._running = ExitStack()
        self._processes: dict[str, FlowgraphProcess] = {}
        self._controls: dict[str, FlowgraphControl] = {}
        self._folder = Path()
        self._demand: Demand | None = None

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
        """Start all flowgraphs and wait until they answer.

        A USRP is asked again where it did not answer at once, because libuhd gives it tenths of a second only.
        """
        self._check_open_files()
        left = _USRP_STARTS if self.settings.device is Device.UHD else 1
        while True:
            left -= 1
            try:
                self._start_once()
                return
            except FlowgraphError as error:
                self.stop()
                if not (left and any(words in str(error).lower() for words in _NO_ANSWER)):
                    raise HardwareError(f"{self.lab.source}: {error}") from error
            except BaseException:
                self.stop()
                raise

    def _start_once(self) -> None:
        self.generation += 1
        self._demand = None if self._air is None else Demand(self.settings.margin_samples)
        self._folder = self._running.enter_context(scratch_folder("graphs", sockets=True))
        for radio in self.lab.radios:
            self._launch(radio.name, _GRAPHS[radio.role], self._radio_parameters(radio))
        if self._air is not None:
            parameters = self._air.parameters(self.generation, lambda name: self._address(name, "out"))
            self._launch(AIR, AIR, parameters, transmitters=len(self._air.transmitters))
        for process in self._processes.values():
            process.wait_until_ready(_START_S)

    def _check_open_files(self) -> None:
        """Sockets that a process may not open make GNU Radio wait for ever, without a word."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        needed = _OPEN_FILES + _OPEN_FILES_PER_RADIO * len(self.lab.radios)
        if most != resource.RLIM_INFINITY and most < needed:
            raise HardwareError(
                f"{self.lab.source}: a process may open {most} files here, and the flowgraphs of "
                f"{len(self.lab.radios)} radios need {needed}: raise the limit (ulimit -n 1024)"
            )

    def stop(self) -> None:
        """End all flowgraphs. A second call does nothing.

        All but the jammer's at once, because one that is frozen takes its time, and the jammer's after them.
        """
        processes, self._processes, self._controls = self._processes, {}, {}
        jammer = None if self.lab.jammer is None else self.lab.jammer.name
        for together in (
            [process for name, process in processes.items() if name != jammer],
            [process for name, process in processes.items() if name == jammer],
        ):
            if together:
                with ThreadPoolExecutor(len(together)) as threads:
                    list(threads.map(FlowgraphProcess.stop, together))
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
        if self._air is None:
            raise HardwareError(f"{self.lab.source}: the air between real devices fades by itself")
        self._air.block = block
        self.repair()
        control = self.control(AIR)
        for parameter, taps in self._air.taps().items():
            control.set(parameter, taps)

    def retune(self, name: str, settings: RadioSettings) -> None:
        """Let the air know what a radio is tuned to: what differs from the server's frequency is heard beside it.

        All flowgraphs are started anew where that changes: the oscillator in GNU Radio's channel model is up to a
        buffer ahead of the samples that it turns, and nobody could tell from which one on.
        """
        if self._air is not None and self._air.tune(name, settings):
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
        settings = self.settings
        if settings.simulated:
            return settings.margin_samples + 2 * settings.buffer_samples
        own = _USRP_QUEUE_SAMPLES if settings.device is Device.UHD else 0
        return _QUEUED_MESSAGES * settings.buffer_samples + own

    def _common(self, rate_hz: float, timeout_s: float) -> dict[str, Any]:
        return {
            "block_samples": self.settings.buffer_samples,
            "rate_hz": rate_hz,
            "timeout_s": timeout_s,
            "demand": self._demand,
            "queue_samples": self.queue_samples,
            "watched": self._demand is None and self.settings.real_time,
            "ended": self.ended,
        }

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        made.set_hwm(_HIGH_WATER_MARK)
        return made

    def _launch(self, name: str, graph: str, parameters: dict[str, str], *, transmitters: int | None = None) -> None:
        choices = {} if name == AIR else {"device": self.settings.device.value}
        port = _free_port()
        parameters |= {"control_address": _LOCALHOST, "control_port": str(port)}
        script = build(graph, choices, transmitters)
        process = FlowgraphProcess(
            script,
            parameters,
            {} if name == AIR else self._limits(graph),
            lab_gains=self.settings.device is Device.UHD,
        )
        process.start()
        self._processes[name] = process
        control = FlowgraphControl(name, process.control_url, self.lab.timeout_s)
        self._running.callback(control.close)
        self._controls[name] = control

    def _limits(self, graph: str) -> dict[str, tuple[float, float]]:
        """What the flowgraph itself may be set to: within the lab's limits, whoever asks."""
        able, limits = CAPABILITIES[self.settings.device], self.lab.limits
        if graph == _GRAPHS[Role.PS]:
            highest = able.rx_gain_db[1] if limits.max_rx_gain_db is None else limits.max_rx_gain_db
            return {"rx_gain_db": (able.rx_gain_db[0], highest)}
        # Parked is lowest, whatever the lab allows.
        highest = max(min(able.tx_gain_db[1], limits.max_tx_gain_db), able.tx_gain_db[0])
        return {"tx_gain_db": (able.tx_gain_db[0], highest), "band_hz": limits.band_hz}

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
            # Parked until it is configured; a USRP takes what is below its range for its lowest.
            parameters["tx_gain_db"] = repr(CAPABILITIES[self.settings.device].tx_gain_db[0])
        if self.settings.device is Device.PLUTO:
            parameters["pluto_uri"] = radio.address
        if self.settings.device is Device.UHD:
            parameters |= {"usrp_args": radio.address, "usrp_clock": self.settings.usrp_clock}
        return parameters

    def _monitor_address(self) -> str:
        return self.settings.monitor or f"ipc://{self._folder}/monitor"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOCALHOST, 0))
        return int(found.getsockname()[1])
