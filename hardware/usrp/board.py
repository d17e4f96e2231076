"""What a USRP says that it can do, on the scale of lab files."""

from typing import Any

from hardware.radio.errors import CapabilityError
from hardware.radio.settings import Capabilities
from hardware.radio.tx_gains import LOWEST_TX_GAIN_DB, TxGainRange
from hardware.usrp.converters import clips_at_half_scale
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import CAPABILITIES

_HALF_SCALE_BOARDS = ("USRP2", "N200", "N210")
# Of rates that are often wanted, those that an N2xx does at full scale.
_SAFE_RATES = "1, 2, 2.5, 4, 5 and 10 MS/s"


def tx_gain_range(device: UsrpDevice) -> TxGainRange:
    """Of the daughterboard."""
    found = device.get("tx_gain_range")
    return TxGainRange(float(found.start()), float(found.stop()), float(found.step()) or CAPABILITIES.tx_gain_step_db)


def has_fixed_filters(device: UsrpDevice) -> bool:
    """Whether the analog filters cannot be set: then those of the sample rate limit the band."""
    spans = [device.get(f"{direction}_bandwidth_range") for direction in ("rx", "tx")]
    return all(float(span.start()) == float(span.stop()) for span in spans)


def capabilities_of(device: UsrpDevice) -> Capabilities:
    """What both directions of a box can do."""
    rates = _common(device.get("rx_rates"), device.get("tx_rates"))
    filters = _common(device.get("rx_bandwidth_range"), device.get("tx_bandwidth_range"))
    rx_gain = device.get("rx_gain_range")
    return Capabilities(
        sample_rate_hz=rates,
        center_hz=_common(device.get("fe_rx_freq_range"), device.get("fe_tx_freq_range")),
        bandwidth_hz=(rates[0], min(rates[1], filters[1])) if has_fixed_filters(device) else filters,
        tx_gain_db=(LOWEST_TX_GAIN_DB, 0.0),
        rx_gain_db=(0.0, float(rx_gain.stop()) - float(rx_gain.start())),
        tx_gain_step_db=tx_gain_range(device).step_db,
        rx_gain_step_db=float(rx_gain.step()) or CAPABILITIES.rx_gain_step_db,
        gain_scale=CAPABILITIES.gain_scale,
    )


def require_full_scale(device: UsrpDevice, sample_rate_hz: float) -> None:
    """Raise `CapabilityError` for a rate at which a box clips at half of full scale without a word."""
    board = str(device.get("mboard_name")).upper()
    interpolation = round(float(device.get("master_clock_rate")) / sample_rate_hz)
    if board.startswith(_HALF_SCALE_BOARDS) and interpolation > 0 and clips_at_half_scale(interpolation):
        raise CapabilityError(
            f"{device.name}: sample_rate_hz is {sample_rate_hz:g}: with an interpolation of {interpolation} an {board} "
            f"clips at half of full scale without a word; it does not at {_SAFE_RATES}"
        )


def _common(one: Any, other: Any) -> tuple[float, float]:
    return max(float(one.start()), float(other.start())), min(float(one.stop()), float(other.stop()))
