"""The settings of an AD9361 and what its driver lets them be: what cannot be raises `RefusalError`."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hardware.virtual.iiod.attributes import choice, decimal, flag, whole
from hardware.virtual.iiod.chip.clock_chain import BOOTED, ClockChain, clock_chain
from hardware.virtual.iiod.chip.gain_control import MANUAL, MODES, SLOW, gain_range_db, moved_to
from hardware.virtual.iiod.refusal import invalid

RX_LO_HZ = (70_000_000, 6_000_000_000)
TX_LO_HZ = (46_875_001, 6_000_000_000)
"""The firmware's wide range, which the lab's radios are assumed to have; a stock Pluto says 325 MHz to 3.8 GHz."""
WIDEST_HZ = 56_000_000
"""Of both filters, as the driver takes it (`ad9361_validate_rf_bw`), whatever it says that is available."""
RX_BANDWIDTH_HZ = (200_000, WIDEST_HZ)
TX_BANDWIDTH_HZ = (200_000, 40_000_000)
TX_GAIN_DB = (-89.75, 0.0)
LOWEST_RATE_HZ = 2_083_333
LOWEST_RATE_WITH_FIR_HZ = 520_833
HIGHEST_RATE_HZ = 61_440_000
XO_HZ = 40_000_000
"""The crystal's nominal frequency."""

CHOICES: dict[str, Sequence[str]] = {
    "gain_control_mode": MODES,
    "rx_port": (
        *("A_BALANCED", "B_BALANCED", "C_BALANCED", "A_N", "A_P", "B_N", "B_P", "C_N", "C_P"),
        *("TX_MONITOR1", "TX_MONITOR2", "TX_MONITOR1_2"),
    ),
    "tx_port": ("A", "B"),
    "ensm_mode": ("sleep", "wait", "alert", "fdd", "pinctrl", "pinctrl_fdd_indep"),
    "calib_mode": ("auto", "manual", "manual_tx_quad", "tx_quad", "rf_dc_offs", "rssi_gain_step"),
    "trx_rate_governor": ("nominal", "highest_osr"),
}
_ON_AIR = ("fdd", "pinctrl", "pinctrl_fdd_indep")
# Of the filters that are loaded; where none are, of those that a rate below the lowest without needs.
_FACTORS = re.compile(r",(\d+)")
_USUAL_FACTOR = 4


@dataclass
class Transceiver:
    """State of one chip. Rates, frequencies and bandwidths are whole numbers of Hz, as the driver keeps them.

    It begins as a Pluto's device tree has it (zynq-pluto-sdr.dtsi of plutosdr-fw's Linux).
    """

    rate_hz: int = 30_720_000
    rx_lo_hz: int = 2_400_000_000
    tx_lo_hz: int = 2_450_000_000
    rx_bandwidth_hz: int = 18_000_000
    tx_bandwidth_hz: int = 18_000_000
    rx_gain_db: float = 71.0
    tx_gain_db: float = -10.0
    rx_fir: bool = False
    tx_fir: bool = False
    rx_lo_down: bool = False
    tx_lo_down: bool = False
    loopback: int = 0
    fir_config: str = "FIR Rx: 0,0 Tx: 0,0"
    clocks: ClockChain = BOOTED
    xo_correction_hz: int = XO_HZ
    tracking: dict[str, bool] = field(
        default_factory=lambda: dict.fromkeys(
            ("quadrature_tracking_en", "rf_dc_offset_tracking_en", "bb_dc_offset_tracking_en"), True
        )
    )
    chosen: dict[str, str] = field(
        default_factory=lambda: {
            "gain_control_mode": SLOW,
            "rx_port": "A_BALANCED",
            "tx_port": "A",
            "ensm_mode": "fdd",
            "calib_mode": "auto",
            "trx_rate_governor": "nominal",
        }
    )

    @property
    def transmits(self) -> bool:
        """Whether samples reach the antenna."""
        return not self.tx_lo_down and self.chosen["ensm_mode"] in _ON_AIR and self.loopback != 2

    @property
    def receives(self) -> bool:
        """Whether samples come from the antenna."""
        return not self.rx_lo_down and self.chosen["ensm_mode"] in _ON_AIR

    @property
    def gain_mode(self) -> str:
        """Who sets the receive gain."""
        return self.chosen["gain_control_mode"]

    @property
    def rx_gains_db(self) -> tuple[float, float]:
        """Lowest and highest receive gain at this frequency."""
        return gain_range_db(self.rx_lo_hz)

    @property
    def lowest_rate_hz(self) -> int:
        """Both filters decimate by four, where they are on."""
        return LOWEST_RATE_WITH_FIR_HZ if self.rx_fir and self.tx_fir else LOWEST_RATE_HZ

    def set_rate(self, value: str) -> None:
        """Of both directions: they share a clock."""
        self.rate_hz = int(decimal(value, (self.lowest_rate_hz, HIGHEST_RATE_HZ)))
        self._choose_clocks()

    def set_fir(self, value: str, *, rx: bool = False, tx: bool = False) -> None:
        """Switch the filters of one or both directions; they must stay on where the rate needs them."""
        on = flag(value)
        needed = self.rate_hz < LOWEST_RATE_HZ
        if needed and not on:
            raise invalid(f"{self.rate_hz} S/s needs the FIR filters")
        self.rx_fir = on if rx else self.rx_fir
        self.tx_fir = on if tx else self.tx_fir
        self._choose_clocks()

    def set_fir_config(self, value: str) -> None:
        """Load filter taps: lines "RX 3 GAIN -6 DEC 4", "TX 3 GAIN 0 INT 4", then one "rx,tx" pair for each tap."""
        taps = 0
        factors = {"DEC": 1, "INT": 1}
        for line in value.replace("\0", "").splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] in {"RX", "TX"}:
                for key, number in itertools.pairwise(words):
                    if key in factors:
                        factors[key] = whole(number, (1, 4))
            elif words[0] in {"RRX", "RTX", "BWRX", "BWTX"}:
                continue
            else:
                for number in line.split(","):
                    whole(number, (-32768, 32767))
                taps += 1
        if not 16 <= taps <= 128 or taps % 16:
            raise invalid(f"{taps} taps: expected 16 to 128 in steps of 16")
        self.fir_config = f"FIR Rx: {taps},{factors['DEC']} Tx: {taps},{factors['INT']}"

    def set_rx_lo(self, value: str) -> None:
        """Tune the receiver; the gain may be another one in the new band."""
        lo_hz = whole(value, RX_LO_HZ)
        self.rx_gain_db = moved_to(self.rx_gain_db, self.rx_lo_hz, lo_hz)
        self.rx_lo_hz = lo_hz

    def set_rx_gain(self, value: str) -> None:
        """Outside manual mode the driver logs an error, changes nothing and reports success: so does this."""
        if self.gain_mode == MANUAL:
            self.rx_gain_db = float(round(decimal(value, self.rx_gains_db)))

    def change_rx_gain(self, step_db: float) -> None:
        """By the chip's own control."""
        low, high = self.rx_gains_db
        self.rx_gain_db = min(max(self.rx_gain_db + step_db, low), high)

    def set_tx_gain(self, value: str) -> None:
        """To the nearest quarter of a decibel."""
        self.tx_gain_db = round(decimal(value, TX_GAIN_DB) * 4) / 4

    def set_choice(self, name: str, value: str) -> None:
        """One of `CHOICES`."""
        self.chosen[name] = choice(value, CHOICES[name])
        if name == "trx_rate_governor":
            self._choose_clocks()

    def path_rates(self) -> tuple[str, str]:
        """Rates along the receive and the transmit path, from the PLL to the samples."""
        return self.clocks.said()

    def _choose_clocks(self) -> None:
        """Anew, as the driver does whenever a rate, a filter or the governor is set."""
        rx, tx = (int(factor) or _USUAL_FACTOR for factor in _FACTORS.findall(self.fir_config))
        chain = clock_chain(
            self.rate_hz, rx if self.rx_fir else 1, tx if self.tx_fir else 1, self.chosen["trx_rate_governor"]
        )
        if chain is not None:
            self.clocks = chain
