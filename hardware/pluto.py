"""Radios that are ADALM-Plutos: the `Radio` contract on libiio, with settings through pyadi-iio.

A stock Pluto has no timestamps. Both of its streams are continuous, so samples are counted instead; what is lost breaks
the count, is found (`pluto_stream`) and raised as a typed error. The relation between a transmitter's count and that of
the parameter server is measured over the air (`alignment`), after which all radios of a lab speak the server's.

The server receives, all others transmit. Parking keeps the transmit stream running, with zeros at the lowest gain, so
that its count stays known; closing ends it. Gains change while streams run; anything else restarts them.
"""

import atexit
import logging
import re
import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.converters import to_samples, to_words
from hardware.errors import AlignmentError, HardwareError, SettingsMismatchError
from hardware.gain_split import GainSplit, split_gain
from hardware.pluto_context import PlutoContext
from hardware.pluto_rx_stream import PlutoRxStream
from hardware.pluto_settings import PlutoSettings
from hardware.pluto_stream import LOCKSTEP
from hardware.pluto_tx_stream import PlutoTxStream
from hardware.radio import Radio
from hardware.settings import Capabilities, Limits, RadioSettings

CAPABILITIES = Capabilities(
    sample_rate_hz=(521e3, 61.44e6),
    center_hz=(70e6, 6e9),
    bandwidth_hz=(200e3, 56e6),
    tx_gain_db=(-89.75, 0.0),
    rx_gain_db=(-3.0, 71.0),
    tx_gain_step_db=0.25,
    rx_gain_step_db=1.0,
)
"""The widest that any firmware does; an open radio has what it says itself."""
PARKED = GainSplit(CAPABILITIES.tx_gain_db[0], 0.0)
_TRACKING = {
    "quadrature_tracking_en": "quadrature_tracking",
    "rf_dc_offset_tracking_en": "rf_dc_tracking",
    "bb_dc_offset_tracking_en": "bb_dc_tracking",
}
_RANGE = re.compile(r"\[\s*(-?[\d.]+)\s+-?[\d.]+\s+(-?[\d.]+)\s*\]")
_TELEMETRY_S = 1.0
_LOG = logging.getLogger("airdp")

Epoch = tuple[int, int]
"""Of a stream's count: which stream it is, and how often it has lost samples. What was measured in another is void."""


@dataclass(frozen=True)
class _Alignment:
    """offset_samples: the reference's count minus one's own. epochs: in which it was measured, own and reference's."""

    reference: "PlutoRadio"
    offset_samples: int
    epochs: tuple[Epoch, Epoch]
    clock_ppm: float
    at_sample: int


class PlutoRadio(Radio):
    """One Pluto, which receives or else transmits: its two streams would not share a count."""

    def __init__(
        self,
        name: str,
        uri: str,
        limits: Limits,
        timeout_s: float = 5.0,
        *,
        receives: bool = False,
        settings: PlutoSettings | None = None,
    ) -> None:
        super().__init__(name, CAPABILITIES, limits, timeout_s)
        self.uri, self.receives, self.transmits = uri, receives, not receives
        self._pluto = settings or PlutoSettings()
        self._closing = threading.RLock()
        self._split = PARKED
        self._wanted: RadioSettings | None = None
        self._lost = False
        self._tx: PlutoTxStream | None = None
        self._rx: PlutoRxStream | None = None
        self._next_sample = 0
        self._streams_opened = 0
        self._alignment: _Alignment | None = None
        self._measured: tuple[float, float | None, float | None] | None = None
        self._context = PlutoContext(name, uri, timeout_s)
        _OPEN.add(self)
        try:
            self.capabilities = capabilities_of(self._context)
        except BaseException:
            self._release()
            raise

    @property
    def context(self) -> PlutoContext:
        """The connection, as it is now: it is another one after the radio was lost and found again."""
        return self._context

    @property
    def lockstep(self) -> bool:
        """Whether time stands still while nobody receives."""
        return self._context.virtual == LOCKSTEP

    @property
    def queue_samples(self) -> int:
        """The most that can lie between what the host hands over, or has received, and the antenna."""
        return (self._pluto.kernel_buffers + 2) * self._pluto.buffer_samples

    @property
    def lead_samples(self) -> int:
        """In lockstep what both queues hold, because nothing else moves; else also what the host may take."""
        if self._settings is None:
            return 0
        return 2 * self.queue_samples if self.lockstep else round(self._pluto.lead_s * self._settings.sample_rate_hz)

    def now(self) -> int:
        """See `Radio.now`. A transmitter whose count is not aligned cannot send at all, and says 0."""
        if self._rx is not None:
            return self._rx.now()
        if self._tx is None or not self.aligned or self._alignment is None:
            return 0
        return max(self._tx.now() + self._alignment.offset_samples, self._alignment.reference.now())

    # Counting.

    @property
    def epoch(self) -> Epoch:
        """Of the count of its stream."""
        stream = self._tx or self._rx
        return (self._streams_opened, 0 if stream is None else stream.losses)

    @property
    def aligned(self) -> bool:
        """Whether its sample numbers are the server's: always true for the server."""
        if self.receives:
            return True
        held = self._alignment
        return held is not None and held.epochs == (self.epoch, held.reference.epoch)

    @property
    def clock_ppm(self) -> float:
        """How much faster than the server's its clock was found to be when it was aligned."""
        return 0.0 if self._alignment is None else self._alignment.clock_ppm

    @property
    def aligned_at(self) -> int:
        """The server's sample at which it was aligned."""
        return 0 if self._alignment is None else self._alignment.at_sample

    def send_unaligned(self, samples: NDArray[np.complex64]) -> int:
        """Send a burst as early as possible; returns the sample of its own count at which it starts."""
        self._require_open()
        super()._require_ready()
        return self._transmitting().place(to_words(samples, self._split.digital_scale))

    def set_alignment(
        self, reference: "PlutoRadio", offset_samples: int, epochs: tuple[Epoch, Epoch], clock_ppm: float
    ) -> None:
        """Take over the reference's count: it is `offset_samples` more than one's own. epochs: own and reference's."""
        self._alignment = _Alignment(reference, offset_samples, epochs, clock_ppm, reference.now())

    def withdraw(self) -> int:
        """See `Radio.withdraw`: what the radio itself has queued cannot be called back."""
        return 0 if self._tx is None else self._tx.clear()

    def forget_losses(self) -> None:
        """Let `check` not raise what was lost until now: whoever calls it begins anew."""
        for stream in (self._tx, self._rx):
            if stream is not None:
                stream.forget_losses()

    def check(self) -> None:
        """See `Radio.check`."""
        super().check()
        for stream in (self._tx, self._rx):
            if stream is not None:
                stream.check()

    def recover(self) -> None:
        """Reach the radio again where the connection or a stream broke; it is then as it was configured last."""
        stream = self._tx or self._rx
        broken = not self._context.usable or stream is None or stream.failed
        if self._wanted is None or not broken or (self._parked and not self._lost):
            return
        try:
            self.configure(self._wanted)
        except HardwareError:
            # It is parked, as far as anybody can tell, but not because somebody wanted that: there is a next time.
            self._lost = True
            raise

    def park(self) -> None:
        """See `Radio.park`."""
        self._lost = False
        super().park()

    # The contract's inner half.

    def _write(self, settings: RadioSettings) -> None:
        if not self._context.usable:
            self._reconnect()
        if not self._tuned_to(settings):
            self._stop_streams()
            self._tune(settings)
        self._set("rx_hardwaregain_chan0", settings.rx_gain_db)
        self._start_streams(settings.sample_rate_hz)
        unlike = self._unlike(settings)
        if unlike:
            raise SettingsMismatchError(f"{self.name}: {'; '.join(unlike)}")
        # Last, when all else is as it should be: from here on it is heard.
        split = split_gain(settings.tx_gain_db, self.capabilities.tx_gain_step_db, self.capabilities.tx_gain_db)
        self._set("tx_hardwaregain_chan0", split.attenuator_db)
        self._split = split
        self._wanted = settings

    def _tuned_to(self, settings: RadioSettings) -> bool:
        """Whether nothing but gains differs from what was written last and reads back now, and the stream runs."""
        stream = self._tx or self._rx
        if stream is None or stream.failed or self._wanted is None:
            return False
        gains = {"tx_gain_db": settings.tx_gain_db, "rx_gain_db": settings.rx_gain_db}
        if replace(self._wanted, **gains) != settings:
            return False
        return not settings.differences(replace(self._read_back(), **gains)) and not self._unlike(settings)

    def _tune(self, settings: RadioSettings) -> None:
        context = self._context
        # Quiet first: neither the old stream's end nor a retuned oscillator shall be heard.
        self._set("tx_hardwaregain_chan0", PARKED.attenuator_db)
        context.ask("switching the tone generators off", context.sdr.disable_dds)
        context.write_debug("loopback", "0")
        # pyadi-iio ignores a receive gain without a word in any other mode.
        self._set("gain_control_mode_chan0", "manual")
        self._set("sample_rate", round(settings.sample_rate_hz))
        self._set("rx_lo", round(settings.rx_center_hz))
        self._set("tx_lo", round(settings.tx_center_hz))
        self._set("rx_rf_bandwidth", round(settings.bandwidth_hz))
        self._set("tx_rf_bandwidth", round(settings.bandwidth_hz))
        for attribute, key in _TRACKING.items():
            context.write("voltage0", attribute, str(int(getattr(self._pluto, key))), output=False)

    def _read_back(self) -> RadioSettings:
        return RadioSettings(
            sample_rate_hz=self._get("sample_rate"),
            tx_center_hz=self._get("tx_lo"),
            rx_center_hz=self._get("rx_lo"),
            bandwidth_hz=self._get("rx_rf_bandwidth"),
            tx_gain_db=self._get("tx_hardwaregain_chan0") + self._split.digital_db,
            rx_gain_db=self._get("rx_hardwaregain_chan0"),
        )

    def _unlike(self, settings: RadioSettings) -> list[str]:
        """What reads back otherwise than it was written, of all that is not in `_read_back`."""
        context = self._context
        wanted = {"gain_control_mode": "manual"}
        wanted |= {attribute: str(int(getattr(self._pluto, key))) for attribute, key in _TRACKING.items()}
        got = {attribute: context.read("voltage0", attribute, output=False).strip() for attribute in wanted}
        unlike = [
            f"{attribute} was set to {value} and reads back as {got[attribute]}"
            for attribute, value in wanted.items()
            if got[attribute] != value
        ]
        both = replace(settings, bandwidth_hz=self._get("tx_rf_bandwidth"))
        return unlike + [f"transmit {difference}" for difference in settings.differences(both)]

    def _require_ready(self) -> None:
        super()._require_ready()
        self._transmitting().check()
        if not self.aligned:
            raise AlignmentError(
                f"{self.name} does not count as the server does: samples were lost, or nobody has aligned it yet "
                "(OpenLab.ready)"
            )

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        held = self._alignment
        if held is None:
            raise AlignmentError(f"{self.name} is not aligned")
        words = to_words(samples, self._split.digital_scale)
        self._transmitting().place(words, start_sample - held.offset_samples)

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        if self._rx is None:
            raise HardwareError(f"{self.name} does not receive in this lab: on Plutos the ps alone does")
        return to_samples(self._rx.take(count, start_sample, self.timeout_s))

    def _telemetry(self) -> tuple[float | None, float | None]:
        """Read once a second at most: it takes time on the connection that the streams' status needs as well."""
        now_s = time.monotonic()
        if self._measured is None or now_s - self._measured[0] > _TELEMETRY_S:
            rssi = self._context.read("voltage0", "rssi", output=False)
            self._measured = (now_s, self._context.temperature_c(), float(rssi.split()[0]))
        return self._measured[1:]

    def _silence(self) -> None:
        self.withdraw()
        self._split = PARKED
        try:
            if self._context.usable:
                self._mute()
                return
        except HardwareError as error:
            _LOG.info("%s: parked again over a new connection, because %s", self.name, error)
        self._reconnect()
        self._mute()

    def _mute(self) -> None:
        self._set("tx_hardwaregain_chan0", PARKED.attenuator_db)
        got = self._get("tx_hardwaregain_chan0")
        if got != PARKED.attenuator_db:
            raise SettingsMismatchError(
                f"{self.name} is not parked: its gain was set to {PARKED.attenuator_db:g} dB and reads back as {got:g}"
            )

    def _reconnect(self) -> None:
        self._stop_streams()
        self._context.destroy()
        self._context = PlutoContext(self.name, self.uri, self.timeout_s)

    def close(self) -> None:
        """See `Radio.close`. Several threads may close it; each returns when it is closed."""
        with self._closing:
            try:
                super().close()
            except HardwareError as error:
                raise HardwareError(f"{self.name} may not be parked, switch it off: {error}") from error

    def _release(self) -> None:
        """Interrupted, it can be called again: a context must never go before its streams."""
        self._stop_streams()
        self._context.destroy()
        _OPEN.discard(self)

    # Streams and attributes.

    def _start_streams(self, rate_hz: float) -> None:
        if self._tx is not None or self._rx is not None:
            return
        self._streams_opened += 1
        if self.transmits:
            self._tx = PlutoTxStream(self._context, self._pluto, rate_hz, self._next_sample)
            self._tx.start()
        if self.receives:
            self._rx = PlutoRxStream(self._context, self._pluto, rate_hz, self._next_sample)
            self._rx.start()

    def _stop_streams(self) -> None:
        for stream in (self._tx, self._rx):
            if stream is not None:
                self._next_sample = max(self._next_sample, stream.now())
                stream.stop()
        self._tx = self._rx = None

    def _transmitting(self) -> PlutoTxStream:
        if self._tx is None:
            raise HardwareError(f"{self.name} does not transmit in this lab: on Plutos the ps only receives")
        return self._tx

    def _set(self, name: str, value: Any) -> None:
        sdr = self._context.sdr
        self._context.ask(f"setting {name} to {value}", lambda: setattr(sdr, name, value))

    def _get(self, name: str) -> float:
        sdr = self._context.sdr
        return float(self._context.ask(f"reading {name}", lambda: getattr(sdr, name)))


def capabilities_of(context: PlutoContext) -> Capabilities:
    """What the radio's own `…_available` attributes leave of what any Pluto can do.

    The lowest rate is not among them: it depends on the filters, which are set with the rate.
    """

    def within(widest: tuple[float, float], *places: tuple[str, str, bool]) -> tuple[float, float]:
        low, high = widest
        for channel, attribute, output in places:
            name = f"{attribute}_available"
            said = context.read(channel, name, output=output) if context.has(channel, name, output=output) else ""
            match = _RANGE.search(said)
            if match:
                low, high = max(low, float(match[1])), min(high, float(match[2]))
        return low, high

    return replace(
        CAPABILITIES,
        center_hz=within(
            CAPABILITIES.center_hz, ("altvoltage0", "frequency", True), ("altvoltage1", "frequency", True)
        ),
        bandwidth_hz=within(
            CAPABILITIES.bandwidth_hz, ("voltage0", "rf_bandwidth", False), ("voltage0", "rf_bandwidth", True)
        ),
        tx_gain_db=within(CAPABILITIES.tx_gain_db, ("voltage0", "hardwaregain", True)),
        rx_gain_db=within(CAPABILITIES.rx_gain_db, ("voltage0", "hardwaregain", False)),
    )


_OPEN: "weakref.WeakSet[PlutoRadio]" = weakref.WeakSet()


@atexit.register
def _close_what_is_left() -> None:
    """The last line of defence, for programs that end without closing their radios. No thread starts at that time."""
    # Receivers first: where time is simulated, it then goes on, and the streams of transmitters can end.
    for radio in sorted(_OPEN, key=lambda radio: radio.transmits):
        try:
            radio.close()
            radio._release()
        except HardwareError as error:
            _LOG.error("%s", error)
