"""Radios that are ADALM-Plutos: the `Radio` contract on libiio, with settings through pyadi-iio.

A stock Pluto has no timestamps: see `hardware.counted`. Gains change while streams run; anything else restarts them.
"""

import atexit
import logging
import math
import re
import time
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.counted.radio import CountedRadio
from hardware.counted.rx import RxStream
from hardware.counted.tx import TxStream
from hardware.pluto.context import PlutoContext
from hardware.pluto.converters import to_samples, to_words, tx_step
from hardware.pluto.port import LOCKSTEP, PlutoRxPort, PlutoTxPort
from hardware.pluto.settings import CAPABILITIES, PlutoSettings
from hardware.radio.errors import CapabilityError, HardwareError, SettingsMismatchError
from hardware.radio.gain_split import GainSplit, split_gain
from hardware.radio.settings import Capabilities, Limits, RadioSettings

PARKED = GainSplit(CAPABILITIES.tx_gain_db[0], 0.0)
_TRACKING = {
    "quadrature_tracking_en": "quadrature_tracking",
    "rf_dc_offset_tracking_en": "rf_dc_tracking",
    "bb_dc_offset_tracking_en": "bb_dc_tracking",
}
# Other programs leave oscillators off and the state machine asleep when they close (SoapySDR's module does).
_ON_AIR = "fdd"
_OSCILLATORS = {"altvoltage0": "receive LO", "altvoltage1": "transmit LO"}
_RANGE = re.compile(r"\[\s*(-?[\d.]+)\s+-?[\d.]+\s+(-?[\d.]+)\s*\]")
_TELEMETRY_S = 1.0
_LOG = logging.getLogger("airdp")


class PlutoRadio(CountedRadio):
    """One Pluto, which receives or else transmits: its two streams would not share a count."""

    def __init__(
        self,
        name: str,
        uri: str,
        limits: Limits,
        timeout_s: float = 5.0,
        *,
        receives: bool = False,
        observes: bool = False,
        settings: PlutoSettings | None = None,
    ) -> None:
        super().__init__(name, CAPABILITIES, limits, timeout_s, receives=receives, observes=observes)
        self.uri = uri
        self._pluto = settings or PlutoSettings()
        self._split = PARKED
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

    @property
    def connected(self) -> bool:
        """See `CountedRadio.connected`."""
        return self._context.usable

    @property
    def tx_step(self) -> float | None:
        """See `Radio.tx_step`: 2^-10 for the converter's 12 bits, and more with a digital scale below 1."""
        return tx_step(self._split.digital_scale)

    @property
    def tx_image_db(self) -> float | None:
        """See `Radio.tx_image_db`."""
        return self._pluto.tx_image_db

    def _write(self, settings: RadioSettings) -> None:
        if not self._context.usable:
            self._reconnect()
        if not self._tuned_to(settings):
            self._stop_streams()
            self._tune(settings)
            self._check_rx_gain(settings)
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
        context.write_device("ensm_mode", _ON_AIR)
        for channel in _OSCILLATORS:
            context.write(channel, "powerdown", "0", output=True)
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

    def _check_rx_gain(self, settings: RadioSettings) -> None:
        """The chip has a table of gains for each of three bands: what it can do is known when it is tuned."""
        low, high = _within(self._context, (-math.inf, math.inf), ("voltage0", "hardwaregain", False))
        if not low <= settings.rx_gain_db <= high:
            raise CapabilityError(
                f"{self.name}: rx_gain_db is {settings.rx_gain_db:g}: at {settings.rx_center_hz / 1e6:g} MHz this "
                f"radio does {low:g} to {high:g} dB"
            )

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
        wanted["ensm_mode"], got["ensm_mode"] = _ON_AIR, context.read_device("ensm_mode").strip()
        for channel, name in _OSCILLATORS.items():
            wanted[f"powerdown of the {name}"] = "0"
            got[f"powerdown of the {name}"] = context.read(channel, "powerdown", output=True).strip()
        unlike = [
            f"{attribute} was set to {value} and reads back as {got[attribute]}"
            for attribute, value in wanted.items()
            if got[attribute] != value
        ]
        both = replace(settings, bandwidth_hz=self._get("tx_rf_bandwidth"))
        return unlike + [f"transmit {difference}" for difference in settings.differences(both)]

    def _encode(self, samples: NDArray[np.complex64]) -> NDArray[Any]:
        return to_words(samples, self._split.digital_scale)

    def _decode(self, raw: NDArray[Any]) -> tuple[NDArray[np.complex64], int]:
        return to_samples(raw)

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

    def _release(self) -> None:
        """Interrupted, it can be called again: a context must never go before its streams."""
        self._stop_streams()
        self._context.destroy()
        _OPEN.discard(self)

    def _open_tx(self, rate_hz: float, first_sample: int) -> TxStream:
        return TxStream(PlutoTxPort(self._context, self._pluto, rate_hz), first_sample)

    def _open_rx(self, rate_hz: float, first_sample: int) -> RxStream:
        port = PlutoRxPort(self._context, self._pluto, rate_hz, always=self.observes)
        return RxStream(port, round(self._pluto.history_s * rate_hz), first_sample, always=self.observes)

    def _set(self, name: str, value: Any) -> None:
        sdr = self._context.sdr
        self._context.ask(f"setting {name} to {value}", lambda: setattr(sdr, name, value))

    def _get(self, name: str) -> float:
        sdr = self._context.sdr
        return float(self._context.ask(f"reading {name}", lambda: getattr(sdr, name)))


def capabilities_of(context: PlutoContext) -> Capabilities:
    """What the radio's own `…_available` attributes leave of what any Pluto can do.

    The lowest rate is not among them: it depends on the filters, which are set with the rate. Nor are receive gains,
    which depend on the frequency.
    """
    widest = CAPABILITIES
    return replace(
        widest,
        center_hz=_within(
            context, widest.center_hz, ("altvoltage0", "frequency", True), ("altvoltage1", "frequency", True)
        ),
        bandwidth_hz=_within(
            context, widest.bandwidth_hz, ("voltage0", "rf_bandwidth", False), ("voltage0", "rf_bandwidth", True)
        ),
        tx_gain_db=_within(context, widest.tx_gain_db, ("voltage0", "hardwaregain", True)),
    )


def _within(context: PlutoContext, widest: tuple[float, float], *places: tuple[str, str, bool]) -> tuple[float, float]:
    """What the attributes at (channel, name, output) say that they take, of `widest`."""
    low, high = widest
    for channel, attribute, output in places:
        name = f"{attribute}_available"
        said = context.read(channel, name, output=output) if context.has(channel, name, output=output) else ""
        match = _RANGE.search(said)
        if match:
            low, high = max(low, float(match[1])), min(high, float(match[2]))
    return low, high


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
