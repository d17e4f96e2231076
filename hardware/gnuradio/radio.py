"""A radio that is a GNU Radio flowgraph.

Samples pass in continuous streams that are counted (`hardware.counted`), with zeros between bursts; parameters go
through the flowgraph's XML-RPC server.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.counted.radio import CountedRadio
from hardware.counted.rx import RxStream
from hardware.counted.tx import TxStream
from hardware.gnuradio.processes import FlowgraphProcesses
from hardware.gnuradio.settings import CAPABILITIES, TX_STEPS, Device
from hardware.radio.errors import HardwareError, SettingsMismatchError
from hardware.radio.settings import Limits, RadioSettings
from hardware.radio.tx_gains import TxGain, TxGainRange


class GnuRadioRadio(CountedRadio):
    """One of the flowgraphs of a lab, which must run. Its stream begins at once, parked."""

    def __init__(
        self,
        name: str,
        processes: FlowgraphProcesses,
        limits: Limits,
        timeout_s: float = 5.0,
        *,
        receives: bool = False,
    ) -> None:
        rate_hz = processes.lab.sample_rate_hz
        capabilities = CAPABILITIES[processes.settings.device]
        if processes.settings.simulated:
            # One air has one sample rate.
            capabilities = replace(capabilities, sample_rate_hz=(rate_hz, rate_hz))
        super().__init__(name, capabilities, limits, timeout_s, receives=receives)
        self._processes, self._written = processes, 0
        self._range: TxGainRange | None = None
        # The server's flowgraph has no transmitter: this is then all there is of it.
        self._tx_gain = TxGain(self._parked_db, self._parked_db, 0.0)
        processes.members.append(self)
        self._start_streams(rate_hz)

    @property
    def _parked_db(self) -> float:
        return self.capabilities.tx_gain_db[0]

    def _usrp_range(self) -> TxGainRange | None:
        """Of the gain of a USRP; None where the flowgraph counts as lab files do."""
        if self._range is None and self._processes.settings.device is Device.UHD:
            self._range = self._processes.control(self.name).gain_range()
        return self._range

    def _split(self, lab_db: float) -> TxGain:
        """A lab's transmit gain as that of the flowgraph, and a scale on the samples."""
        found = self._usrp_range()
        return TxGain(lab_db, lab_db, 0.0) if found is None or self.receives else found.split(lab_db)

    @property
    def _smallest_rx_gain_db(self) -> float:
        """From which lab files count."""
        found = self._usrp_range()
        return 0.0 if found is None else found.low_db

    @property
    def lockstep(self) -> bool:
        """See `CountedRadio.lockstep`."""
        return self._processes.settings.simulated

    @property
    def queue_samples(self) -> int:
        """See `CountedRadio.queue_samples`."""
        return self._processes.queue_samples

    @property
    def lead_samples(self) -> int:
        """In lockstep what may be on its way, because nothing else moves; else also what the host may take."""
        if self._settings is None:
            return 0
        lead_s = self._processes.settings.lead_s
        return self.queue_samples if self.lockstep else round(lead_s * self._settings.sample_rate_hz)

    @property
    def connected(self) -> bool:
        """See `CountedRadio.connected`."""
        return self._written == self._processes.generation and not self._processes.ended()

    @property
    def tx_step(self) -> float | None:
        """See `Radio.tx_step`. Flowgraphs pass floating point on; what is behind them rounds by itself."""
        step = TX_STEPS[self._processes.settings.device]
        return None if step is None else step / self._tx_gain.digital_scale

    @property
    def tx_image_db(self) -> float | None:
        """See `Radio.tx_image_db`."""
        return -math.inf if self._processes.settings.simulated else self._processes.settings.tx_image_db

    @property
    def stands_still(self) -> bool:
        """Whether its stream has ended by itself."""
        stream = self._tx or self._rx
        return stream is not None and stream.failed

    def check(self) -> None:
        """See `Radio.check`. What was sent into flowgraphs of which one is gone may not have gone out."""
        super().check()
        trouble = self._processes.trouble()
        if trouble:
            raise HardwareError(f"{self.name}: {trouble}")

    def begin_again(self) -> None:
        """All flowgraphs are new, and so is the count."""
        if not self._closed:
            self._stop_streams()
            self._start_streams(self._processes.lab.sample_rate_hz)

    def _write(self, settings: RadioSettings) -> None:
        self._processes.repair()
        self._processes.retune(self.name, settings)
        control = self._processes.control(self.name)
        if not self.receives:
            # Silent while it moves: between two settings that are allowed may lie one that is not.
            control.set("tx_gain_db", self._split(self._parked_db).device_db)
        control.set("sample_rate_hz", settings.sample_rate_hz)
        control.set("center_hz", settings.rx_center_hz if self.receives else settings.tx_center_hz)
        control.set("bandwidth_hz", settings.bandwidth_hz)
        # Last, when all else is as it should be: from here on it is heard.
        gain = self._split(settings.tx_gain_db)
        if self.receives:
            control.set("rx_gain_db", settings.rx_gain_db + self._smallest_rx_gain_db)
        else:
            control.set("tx_gain_db", gain.device_db)
        self._wanted, self._written, self._tx_gain = settings, self._processes.generation, gain

    def _read_back(self) -> RadioSettings:
        """What its flowgraph says; of the direction that it has not got, what was written."""
        if self._wanted is None:
            raise HardwareError(f"{self.name} has no settings yet: configure it first")
        written = replace(self._wanted, tx_gain_db=self._tx_gain.lab_db)
        if self._gone():
            return written
        control = self._processes.control(self.name)
        common = {name: control.get(name) for name in ("sample_rate_hz", "bandwidth_hz")}
        if self.receives:
            rx_gain_db = control.get("rx_gain_db") - self._smallest_rx_gain_db
            own = {"rx_center_hz": control.get("center_hz"), "rx_gain_db": rx_gain_db}
        else:
            tx_gain_db = self._tx_gain.read_back(control.get("tx_gain_db"))
            own = {"tx_center_hz": control.get("center_hz"), "tx_gain_db": tx_gain_db}
        return replace(written, **common, **own)

    def _gone(self) -> bool:
        """Whether it cannot be heard: a simulated radio ends with the flowgraphs, and they all end when one has."""
        return self._processes.settings.simulated and bool(self._processes.ended())

    def _silence(self) -> None:
        self.withdraw()
        if self.receives or self._gone():
            self._tx_gain = TxGain(self._parked_db, self._parked_db, 0.0)
            return
        try:
            control = self._processes.control(self.name)
            self._tx_gain = self._split(self._parked_db)
            control.set("tx_gain_db", self._tx_gain.device_db)
            got = control.get("tx_gain_db")
        except HardwareError:
            if not self._gone():
                raise
            return
        wanted = self._tx_gain.device_db
        if got != wanted:
            raise SettingsMismatchError(
                f"{self.name} is not parked: its gain was set to {wanted:g} dB and reads back as {got:g}"
            )

    def _release(self) -> None:
        self._stop_streams()

    def _open_tx(self, rate_hz: float, first_sample: int) -> TxStream:
        return TxStream(self._processes.tx_port(self.name, rate_hz, self.timeout_s), first_sample)

    def _open_rx(self, rate_hz: float, first_sample: int) -> RxStream:
        port = self._processes.rx_port(self.name, rate_hz, self.timeout_s, first_sample)
        return RxStream(port, round(self._processes.settings.history_s * rate_hz), first_sample)

    def _encode(self, samples: NDArray[np.complex64]) -> NDArray[Any]:
        scale = self._tx_gain.digital_scale
        return samples.copy() if scale == 1.0 else samples * np.float32(scale)

    def _decode(self, raw: NDArray[Any]) -> tuple[NDArray[np.complex64], int]:
        parts = raw.view(np.float32)
        clipped = int(np.count_nonzero((np.abs(parts) >= 1.0).reshape(-1, 2).any(axis=1)))
        if clipped:
            np.clip(parts, -1.0, 1.0, out=parts)
        return raw, clipped
