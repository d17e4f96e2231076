"""Radios that are USRPs: the `Radio` contract on UHD.

A box has timestamps: sample k is tick k times the ticks of a sample, of a time that all boxes of a lab share. Nothing
has to be counted, and what is lost has a place. Gains change while streams run; anything else restarts them.
"""

import atexit
import logging
import threading
import weakref
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, LockLostError, SettingsMismatchError
from hardware.radio.settings import Limits, RadioSettings
from hardware.usrp.board import capabilities_of, has_fixed_filters, require_full_scale, tx_gain_range
from hardware.usrp.boxes import Boxes
from hardware.usrp.bursts import BurstStream
from hardware.usrp.captures import CaptureStream
from hardware.usrp.converters import dac_bits, to_samples, to_words, tx_step
from hardware.usrp.device import UsrpDevice
from hardware.usrp.ticks import Ticks, ticks_of
from hardware.usrp.timing import require_locked, require_tuned, ticks_since_pulse, tune

LOCKSTEP_LEAD_SAMPLES = 1 << 15
"""More than a socket of `LOCKSTEP_BUFFER_BYTES` holds."""
_LOG = logging.getLogger("airdp")


class UsrpRadio(Radio):
    """One box of `boxes`, which are open. receives: it listens from when it is configured on. observes: beside the
    server, whose it is to let time go on.

    lockstep: the box is a virtual one whose time stands still while nobody receives. alone: the lab's other boxes
    belong to other processes, and its count begins at a pulse; see `count_as`.
    """

    def __init__(
        self,
        name: str,
        boxes: Boxes,
        limits: Limits,
        timeout_s: float = 5.0,
        *,
        receives: bool = False,
        observes: bool = False,
        lockstep: bool = False,
        alone: bool = False,
    ) -> None:
        device = boxes.devices[name]
        super().__init__(name, capabilities_of(device), limits, timeout_s)
        self.receives, self.observes, self.lockstep, self._alone = receives, observes, lockstep, alone
        self._origin: int | None = None
        self.boxes, self._usrp = boxes, boxes.settings
        self._gains = tx_gain_range(device)
        self._gain = self._gains.parked
        self._fixed_filters = has_fixed_filters(device)
        self._bits = self._usrp.dac_bits or dac_bits(str(device.get("mboard_name")))
        self._ticks: Ticks | None = None
        self._tx: BurstStream | None = None
        self._rx: CaptureStream | None = None
        self._wanted: RadioSettings | None = None
        self._lost = False
        self._closing = threading.RLock()
        _OPEN.add(self)

    @property
    def device(self) -> UsrpDevice:
        """The connection, as it is now: it is another one after the box was lost and found again."""
        return self.boxes.devices[self.name]

    @property
    def lead_samples(self) -> int:
        """See `Radio.lead_samples`; in lockstep time moves on until the host's socket is full, and no further."""
        if self._settings is None:
            return 0
        if self.lockstep:
            return LOCKSTEP_LEAD_SAMPLES
        return round(self._usrp.lead_s * self._settings.sample_rate_hz)

    @property
    def tx_step(self) -> float | None:
        """See `Radio.tx_step`."""
        return tx_step(self._gain.digital_scale, self._bits)

    @property
    def tx_image_db(self) -> float | None:
        """See `Radio.tx_image_db`."""
        return self._usrp.tx_image_db

    def now(self) -> int:
        """See `Radio.now`."""
        if self._ticks is None:
            return 0
        busy = 0 if self._tx is None else self._tx.busy_until
        return max(self._time_sample(), busy)

    def clock_sample(self) -> int:
        """The sample that is under way, by the box's clock."""
        return self._count.sample_at(self.device.get("time_now"))

    def count_as(self, server_sample: int) -> None:
        """Number samples as a server elsewhere does, whose clock was at `server_sample` less than half a second ago.

        Its seconds begin at the pulses that this box gets too.
        """
        ticks = self._count
        now, since = ticks_since_pulse(self.device, ticks.tick_rate_hz)
        second = round(ticks.tick_rate_hz)
        told = server_sample * ticks.per_sample
        took = (since - told) % second
        if took > second // 2:
            raise LockLostError(
                f"{self.name} had its pulse {1e3 * (second - took) / second:.3f} ms before the server's clock says so: "
                "do both get the same ones? Or the server's message took longer than half a second"
            )
        origin = now - told - took
        if origin != ticks.origin:
            self._stop_streams()
            self._origin, self._ticks = origin, replace(ticks, origin=origin)

    @property
    def sending(self) -> bool:
        """Whether a burst is not over."""
        return self._tx is not None and self._tx.unsent(self._time_sample()) > 0

    def pulse_sample(self) -> float:
        """When the last pulse came, in samples."""
        pulse, ticks = self.device.get("time_last_pps"), self._count
        return (int(pulse.to_ticks(ticks.tick_rate_hz)) - ticks.origin) / ticks.per_sample

    def count_back(self, samples: int) -> None:
        """Number samples lower by so many."""
        ticks = self._count
        self._stop_streams()
        self._origin = ticks.origin + samples * ticks.per_sample
        self._ticks = replace(ticks, origin=self._origin)
        self.resume()

    def _time_sample(self) -> int:
        """The first sample that has not begun."""
        return self._count.sample_at(self.device.get("time_now")) + 1

    @property
    def _count(self) -> Ticks:
        if self._ticks is None:
            raise HardwareError(f"{self.name} has no settings yet: configure it first")
        return self._ticks

    def check(self) -> None:
        """See `Radio.check`. Of bursts that are over, the box must have said that they went out whole."""
        super().check()
        if self._ticks is None:
            return
        if self._rx is not None:
            self._rx.raise_loss()
        if self._tx is not None:
            self._tx.settle(self._time_sample())
        require_locked(self.device, self.boxes.boxes[self.name])

    def withdraw(self) -> int:
        """See `Radio.withdraw`: a new stream empties the box's queue as well, the rest of a burst included."""
        if self._tx is None:
            return 0
        stream, self._tx = self._tx, None
        stream.stop()
        if not self.device.usable:
            return 0
        count = stream.unsent(self._time_sample())
        if count:
            self._tx = self._open_tx()
        return count

    @property
    def lost(self) -> bool:
        """Whether it is wanted, and it or a stream of it has failed."""
        return self._wanted is not None and self._broken and (not self._parked or self._lost)

    @property
    def _broken(self) -> bool:
        return not self.boxes.ready(self.name) or (self._rx is not None and self._rx.failed)

    def pause(self) -> None:
        """In lockstep: cease to receive, so that time goes on by itself and pulses come."""
        if self.lockstep and self._rx is not None:
            stream, self._rx = self._rx, None
            stream.stop()

    def resume(self) -> None:
        """Receive again."""
        if self.receives and self._rx is None and self._ticks is not None and self.boxes.ready(self.name):
            self._rx = self._open_rx()

    def recover(self) -> None:
        """Reach the box again where it or a stream has failed; it is then as it was configured last."""
        if self._wanted is None or not self.lost:
            return
        try:
            self.configure(self._wanted)
        except HardwareError:
            # It is parked, as far as anybody can tell, but not because somebody wanted that: there is a next time.
            self._lost = True
            raise

    def forget_losses(self) -> None:
        """Let `check` not raise what was lost until now: whoever calls it begins anew."""
        if self._tx is not None:
            self._tx.forget_damage()
        if self._rx is not None:
            self._rx.forget_loss()

    def park(self) -> None:
        """See `Radio.park`."""
        self._lost = False
        super().park()

    def close(self) -> None:
        """See `Radio.close`. Several threads may close it; each returns when it is closed."""
        with self._closing:
            try:
                super().close()
            except HardwareError as error:
                raise HardwareError(f"{self.name} may not be parked, switch it off: {error}") from error

    def _write(self, settings: RadioSettings) -> None:
        if self._broken:
            self._reach()
        device = self.device
        require_full_scale(device, settings.sample_rate_hz)
        if self._ticks is None or self._read_back().sample_rate_hz != settings.sample_rate_hz:
            self._set_rate(settings.sample_rate_hz)
        self._tune(settings)
        device.set("rx_gain", settings.rx_gain_db + float(device.get("rx_gain_range").start()))
        require_tuned(device)
        require_locked(device, self.boxes.boxes[self.name])
        unlike = self._unlike(settings)
        if unlike:
            raise SettingsMismatchError(f"{self.name}: {'; '.join(unlike)}")
        if self.receives and self._rx is None:
            self._rx = self._open_rx()
        # Last, when all else is as it should be: from here on it is heard.
        gain = self._gains.split(settings.tx_gain_db)
        device.set("tx_gain", gain.device_db)
        self._gain, self._wanted = gain, settings

    def _reach(self) -> None:
        """The box again, with the time of the others, parked."""
        self._stop_streams()
        if not self.boxes.ready(self.name):
            self._ticks = self._origin = None
            self.boxes.reopen(self.name)

    def _set_rate(self, sample_rate_hz: float) -> None:
        self._stop_streams()
        device = self.device
        # Quiet first: neither the old stream's end nor a retuned oscillator shall be heard.
        device.set("tx_gain", self._gains.parked.device_db)
        tick_rate_hz = float(device.get("master_clock_rate"))
        if self._alone and self._origin is None:
            now, since = ticks_since_pulse(device, tick_rate_hz)
            self._origin = now - since
        self._ticks = replace(ticks_of(self.name, tick_rate_hz, sample_rate_hz), origin=self._origin or 0)
        device.set("rx_rate", sample_rate_hz)
        device.set("tx_rate", sample_rate_hz)

    def _tune(self, settings: RadioSettings) -> None:
        device = self.device
        now = self._read_back()
        if settings.differences(replace(settings, tx_center_hz=now.tx_center_hz, rx_center_hz=now.rx_center_hz)):
            self._stop_streams()
            tune(device, settings.tx_center_hz, settings.rx_center_hz)
        if not self._fixed_filters and now.bandwidth_hz != settings.bandwidth_hz:
            device.set("rx_bandwidth", settings.bandwidth_hz)
            device.set("tx_bandwidth", settings.bandwidth_hz)

    def _read_back(self) -> RadioSettings:
        device = self.device
        rate_hz = float(device.get("rx_rate"))
        return RadioSettings(
            sample_rate_hz=rate_hz,
            tx_center_hz=float(device.get("tx_freq")),
            rx_center_hz=float(device.get("rx_freq")),
            bandwidth_hz=self._bandwidth_hz("rx", rate_hz),
            tx_gain_db=self._gain.read_back(float(device.get("tx_gain"))),
            rx_gain_db=float(device.get("rx_gain")) - float(device.get("rx_gain_range").start()),
        )

    def _bandwidth_hz(self, direction: str, rate_hz: float) -> float:
        """Of the analog filters; where they are fixed and wider, of those that come with the rate."""
        analog = float(self.device.get(f"{direction}_bandwidth"))
        return min(analog, rate_hz) if self._fixed_filters else analog

    def _unlike(self, settings: RadioSettings) -> list[str]:
        """What reads back otherwise than it was written, of all that is not in `_read_back`."""
        rate_hz = float(self.device.get("tx_rate"))
        sending = replace(settings, sample_rate_hz=rate_hz, bandwidth_hz=self._bandwidth_hz("tx", rate_hz))
        return [f"transmit {difference}" for difference in settings.differences(sending)]

    def _require_ready(self) -> None:
        super()._require_ready()
        if self._tx is not None:
            self._tx.raise_damage()

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        if self._tx is None:
            self._tx = self._open_tx()
        self._tx.place(to_words(samples, self._gain.digital_scale, self._bits), start_sample)

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        if self._rx is None:
            self._rx = self._open_rx()
        return to_samples(self._rx.take(count, start_sample + self._usrp.delay_samples))

    def _open_tx(self) -> BurstStream:
        return BurstStream(self.device, self._count, self.timeout_s, lockstep=self.lockstep)

    def _open_rx(self) -> CaptureStream:
        ticks = self._count
        history = round(self._usrp.history_s * ticks.tick_rate_hz / ticks.per_sample)
        on_demand = self.lockstep and not self.observes
        return CaptureStream(self.device, ticks, history, self.timeout_s, lockstep=on_demand)

    def _telemetry(self) -> tuple[float | None, float | None]:
        return temperature_c(self.device), None

    def _silence(self) -> None:
        try:
            if self.device.usable:
                self._mute()
                return
        except HardwareError as error:
            _LOG.info("%s: parked again over a new connection, because %s", self.name, error)
        self._stop_streams()
        self._ticks = self._origin = None
        self.boxes.reconnect(self.name)
        self._mute()

    def _mute(self) -> None:
        """The gain first: what the box has queued is then inaudible, and then it is gone."""
        self._gain = self._gains.parked
        device = self.device
        device.set("tx_gain", self._gain.device_db)
        self.withdraw()
        got = float(device.get("tx_gain"))
        if got != self._gain.device_db:
            raise SettingsMismatchError(
                f"{self.name} is not parked: its gain was set to {self._gain.device_db:g} dB and reads back as {got:g}"
            )

    def _stop_streams(self) -> None:
        tx, self._tx = self._tx, None
        rx, self._rx = self._rx, None
        for stream in (tx, rx):
            if stream is not None:
                stream.stop()

    def _release(self) -> None:
        """The box itself is given back with the others (`Boxes.close`): that takes a second, which nobody shall wait
        for who still has to be silenced."""
        self._stop_streams()
        _OPEN.discard(self)


def temperature_c(device: UsrpDevice) -> float | None:
    """Of the box, where it has a sensor for it."""
    found = device.sensor("temp")
    return found if isinstance(found, float) else None


_OPEN: "weakref.WeakSet[UsrpRadio]" = weakref.WeakSet()


@atexit.register
def _close_what_is_left() -> None:
    """The last line of defence, for programs that end without closing their radios. No thread starts at that time."""
    for radio in list(_OPEN):
        try:
            radio.close()
        except HardwareError as error:
            _LOG.error("%s", error)
