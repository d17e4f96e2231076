"""Radios that are GNU Radio flowgraphs, reached over ZeroMQ; this process needs no GNU Radio in its own Python.

Each radio of a lab is a flowgraph of `flowgraphs/` in a process of its own. With the device "zeromq" they meet in the
flowgraph `air`, whose time moves only as far as somebody receives. Samples pass in continuous streams that are counted
(`counted_radio`), with zeros between bursts; parameters go through each flowgraph's XML-RPC server.
"""

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.counted_lab import align, close_together, require_one_direction
from hardware.counted_radio import CountedRadio
from hardware.errors import HardwareError, LabFileError, SettingsMismatchError
from hardware.gnuradio_bench import FlowgraphBench
from hardware.gnuradio_settings import CAPABILITIES, Device
from hardware.lab import Backend, Lab, Role
from hardware.medium import ClockMode
from hardware.medium_settings import MediumSettings
from hardware.radio import Radio
from hardware.rx_stream import RxStream
from hardware.settings import AD936X, Limits, RadioSettings
from hardware.termination import orderly_termination
from hardware.tx_stream import TxStream

_NOT_IN_THE_AIR = (
    "phase_noise_rad_per_sqrt_sample",
    "iq_image_db",
    "dc_offset_dbfs",
    "pa_saturation",
    "dac_bits",
    "adc_bits",
)
_LOG = logging.getLogger("airdp")


class GnuRadioRadio(CountedRadio):
    """One flowgraph of a bench, which must run. Its stream begins at once, parked."""

    def __init__(
        self, name: str, bench: FlowgraphBench, limits: Limits, timeout_s: float = 5.0, *, receives: bool = False
    ) -> None:
        rate_hz = bench.lab.sample_rate_hz
        capabilities = CAPABILITIES[bench.lab.gnuradio.device]
        if bench.simulated:
            # One air has one sample rate.
            capabilities = replace(capabilities, sample_rate_hz=(rate_hz, rate_hz))
        super().__init__(name, capabilities, limits, timeout_s, receives=receives)
        self._bench, self._written = bench, 0
        # The server's flowgraph has no transmitter: this is then all there is of it.
        self._tx_gain_db = self._parked_db
        bench.members.append(self)
        self._start_streams(rate_hz)

    @property
    def _parked_db(self) -> float:
        return self.capabilities.tx_gain_db[0]

    @property
    def lockstep(self) -> bool:
        """See `CountedRadio.lockstep`."""
        return self._bench.simulated

    @property
    def queue_samples(self) -> int:
        """See `CountedRadio.queue_samples`."""
        return self._bench.queue_samples

    @property
    def lead_samples(self) -> int:
        """In lockstep what may be on its way, because nothing else moves; else also what the host may take."""
        if self._settings is None:
            return 0
        lead_s = self._bench.lab.gnuradio.lead_s
        return self.queue_samples if self.lockstep else round(lead_s * self._settings.sample_rate_hz)

    @property
    def connected(self) -> bool:
        """See `CountedRadio.connected`."""
        return self._written == self._bench.generation and not self._bench.ended()

    @property
    def stands_still(self) -> bool:
        """Whether its stream has ended by itself."""
        stream = self._tx or self._rx
        return stream is not None and stream.failed

    def check(self) -> None:
        """See `Radio.check`. What was sent into flowgraphs of which one is gone may not have gone out."""
        super().check()
        trouble = self._bench.trouble()
        if trouble:
            raise HardwareError(f"{self.name}: {trouble}")

    def begin_again(self) -> None:
        """All flowgraphs are new, and so is the count."""
        if not self._closed:
            self._stop_streams()
            self._start_streams(self._bench.lab.sample_rate_hz)

    def _write(self, settings: RadioSettings) -> None:
        self._bench.repair()
        self._bench.retune(self.name, settings)
        control = self._bench.control(self.name)
        control.set("sample_rate_hz", settings.sample_rate_hz)
        control.set("center_hz", settings.rx_center_hz if self.receives else settings.tx_center_hz)
        control.set("bandwidth_hz", settings.bandwidth_hz)
        # Last, when all else is as it should be: from here on it is heard.
        control.set(*self._gain(settings))
        self._wanted, self._written, self._tx_gain_db = settings, self._bench.generation, settings.tx_gain_db

    def _gain(self, settings: RadioSettings) -> tuple[str, float]:
        return ("rx_gain_db", settings.rx_gain_db) if self.receives else ("tx_gain_db", settings.tx_gain_db)

    def _read_back(self) -> RadioSettings:
        """What its flowgraph says; of the direction that it has not got, what was written."""
        if self._wanted is None:
            raise HardwareError(f"{self.name} has no settings yet: configure it first")
        written = replace(self._wanted, tx_gain_db=self._tx_gain_db)
        if self._gone():
            return written
        control = self._bench.control(self.name)
        common = {name: control.get(name) for name in ("sample_rate_hz", "bandwidth_hz")}
        if self.receives:
            own = {"rx_center_hz": control.get("center_hz"), "rx_gain_db": control.get("rx_gain_db")}
        else:
            own = {"tx_center_hz": control.get("center_hz"), "tx_gain_db": control.get("tx_gain_db")}
        return replace(written, **common, **own)

    def _gone(self) -> bool:
        """Whether it cannot be heard: a simulated radio ends with the flowgraphs, and they all end when one has."""
        return self._bench.simulated and bool(self._bench.ended())

    def _silence(self) -> None:
        self.withdraw()
        self._tx_gain_db = self._parked_db
        if self.receives or self._gone():
            return
        try:
            control = self._bench.control(self.name)
            control.set("tx_gain_db", self._parked_db)
            got = control.get("tx_gain_db")
        except HardwareError:
            if not self._gone():
                raise
            return
        if got != self._parked_db:
            raise SettingsMismatchError(
                f"{self.name} is not parked: its gain was set to {self._parked_db:g} dB and reads back as {got:g}"
            )

    def _release(self) -> None:
        self._stop_streams()

    def _open_tx(self, rate_hz: float, first_sample: int) -> TxStream:
        return TxStream(self._bench.tx_port(self.name, rate_hz, self.timeout_s), first_sample)

    def _open_rx(self, rate_hz: float, first_sample: int) -> RxStream:
        port = self._bench.rx_port(self.name, rate_hz, self.timeout_s, first_sample)
        return RxStream(port, round(self._bench.lab.gnuradio.history_s * rate_hz), first_sample)

    def _encode(self, samples: NDArray[np.complex64]) -> NDArray[Any]:
        return samples.copy()

    def _decode(self, raw: NDArray[Any]) -> tuple[NDArray[np.complex64], int]:
        parts = raw.view(np.float32)
        clipped = int(np.count_nonzero((np.abs(parts) >= 1.0).reshape(-1, 2).any(axis=1)))
        if clipped:
            np.clip(parts, -1.0, 1.0, out=parts)
        return raw, clipped


def _connect(lab: Lab, seed: int, stack: ExitStack) -> tuple[dict[str, Radio], FlowgraphBench | None]:
    for radio in lab.radios:
        require_one_direction(lab, radio)
    simulated = lab.gnuradio.device is Device.ZEROMQ
    if simulated:
        _check_air(lab)
    else:
        _check_addresses(lab)
    radios: dict[str, Radio] = {}
    bench = stack.enter_context(FlowgraphBench(lab, seed))
    stack.enter_context(orderly_termination())
    stack.push(close_together(radios))
    for radio in lab.radios:
        radios[radio.name] = GnuRadioRadio(radio.name, bench, lab.limits, lab.timeout_s, receives=radio.role is Role.PS)
    return radios, bench if simulated else None


def _check_air(lab: Lab) -> None:
    if lab.clock_mode is not ClockMode.SHARED:
        raise LabFileError(
            f"{lab.source}: clock is '{lab.clock_mode}': the flowgraph air has one clock for all; "
            "write clock = 'shared', or use the loopback"
        )
    ideal = MediumSettings()
    ignored = sorted(
        {
            key
            for section in (lab.medium, *lab.medium.radio.values())
            for key in _NOT_IN_THE_AIR
            if getattr(section, key) != getattr(ideal, key)
        }
    )
    if ignored:
        _LOG.warning("%s: the flowgraph air does without %s", lab.source, ", ".join(ignored))


def _check_addresses(lab: Lab) -> None:
    for radio in lab.radios:
        if not radio.address:
            raise LabFileError(
                f"{lab.source}: '{radio.name}' has no address: with gnuradio.device = '{lab.gnuradio.device}' each "
                "radio has its own (a Pluto's URI, or the arguments of a USRP)"
            )


# As wide as any device: each radio knows what its own can do.
_ANY = replace(AD936X, sample_rate_hz=(200e3, 61.44e6), tx_gain_db=(-89.75, 89.75), rx_gain_db=(-3.0, 76.0))
BACKEND = Backend(_ANY, _connect, align)
