"""Sections about the way to the server: uplink, radio, channel, power control, jammer."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from fl.ranges import Count, Decibels, Epsilon, Scale
from fl.uplink.jammer import FactorOn, JammerRole
from fl.uplink.modes import Backoff, BaselineBudget, PowerControl, Rescale
from hardware.foundation.sections import Section, choice


class UplinkKind(StrEnum):
    """`ideal`: the exact weighted sum; `symbol`: block fading, noise per coordinate; `radio`: samples over radios."""

    IDEAL = "ideal"
    SYMBOL = "symbol"
    RADIO = "radio"


class Fading(StrEnum):
    """`rayleigh`: drawn anew for every uplink; `static`: always `static_gain`; `file`: read from `path`."""

    RAYLEIGH = "rayleigh"
    STATIC = "static"
    FILE = "file"


class Record(StrEnum):
    """`none`: nothing; `last`: what was received in the newest uplink; `all`: in every uplink."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class UplinkConfig(Section):
    """[uplink] How many uplinks, and through what."""

    kind: Annotated[UplinkKind, choice(UplinkKind)] = UplinkKind.SYMBOL
    uplinks: Annotated[int, Field(ge=1, le=10_000_000)] = 80
    """M: the number of uplinks, for which noise is sized."""
    stop_after: Annotated[int, Field(ge=0)] = 0
    """End the run after this many uplinks although noise is sized for M; 0 means run all M."""


class RadioConfig(Section):
    """[radio] For `uplink.kind = "radio"`: which lab, and the format on the air."""

    lab: str = "loopback"
    """Shipped name or path of a lab file; it must have as many clients as the partition."""
    backend: str = ""
    """Reach the lab through this backend instead of the one that its file names."""
    fft_size: Count = 256
    """Samples of an OFDM symbol without its cyclic prefix."""
    cp_samples: Count = 64
    """Samples of the cyclic prefix: more than the longest delay and multipath of any link."""
    data_subcarriers: Count = 192
    """Used subcarriers, around DC, which stays empty. Each carries two coordinates."""
    sounding_symbols: Annotated[int, Field(ge=2, le=1000)] = 32
    """Symbols from which a channel is estimated; more of them make its error and the bound on the gain smaller."""
    quiet_samples: Annotated[int, Field(ge=4096, le=10**7)] = 65536
    """Silence before each uplink's soundings, in which the level of the noise is measured."""
    first_quiet_samples: Annotated[int, Field(ge=0, le=10**8)] = 2**22
    """Silence at the start of a run, and again after the noise has changed, from which the shape of its spectrum is
    known. Over real radios all later silences that agree with it add to it."""
    payload_rms: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    """Rms of a client's samples at its power limit, full scale 1."""
    confidence: Literal["auto"] | Annotated[float, Field(gt=0.5, lt=1)] = "auto"
    """Of each measured bound that enters the ledger; `auto`: such that all bounds of all M uplinks together fail with
    at most `privacy.bounds_share` of delta. A number is charged to delta as it is: 0.999 leaves nothing of 1e-5."""
    max_phase_error_rad: Annotated[float, Field(gt=0, le=3)] = 0.1
    """Coherence gate: an uplink with a larger predicted phase error is not sent."""
    max_gain_rise_db: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Where nodes are apart: by how much louder a client may sound than the time before. One that is louder has been
    turned up, and the run stops. 0: it is not looked at, because channels fade."""
    calibration: str = ""
    """Record of the lab (`airdp calibrate`) that the run rests on. Radios that it does not fit are refused, and uplinks
    whose noise is not the record's are not sent. Empty: none; soundings then show how linear transmitters are, and all
    noise that is heard counts."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Soundings before an uplink is given up."""
    diagnosis: bool = True
    """Compare each sum with the exact one and keep what `airdp inspect` draws; what is sent does not depend on it."""
    record: Annotated[Record, choice(Record)] = Record.NONE
    """Keep what the receivers received as SigMF in the run folder, for `airdp replay` and other tools."""
    record_sent: bool = False
    """Record what clients and jammer sent as well. It is not private: updates without any noise."""


class ChannelConfig(Section):
    """[channel] Gains, noise and power limit of `uplink.kind = "symbol"`; radios measure theirs."""

    fading: Annotated[Fading, choice(Fading)] = Fading.RAYLEIGH
    snr_db: Decibels = 1.0
    """Limit P_i on a client's energy, as SNR_i = P_i / (d sigma_c^2)."""
    noise_std_real: Scale = 1.0
    """sigma_c: standard deviation of the receiver's noise per real coordinate."""
    static_gain: Scale = 1.0
    """|h_i| of every client for `fading = "static"`."""
    path: str = ""
    """File of gains for `fading = "file"`."""


class PowerConfig(Section):
    """[power] How strongly clients send, and what the server divides by."""

    control: Annotated[PowerControl, choice(PowerControl)] = PowerControl.ADAPTIVE
    """`adaptive`: alpha_u below, clients back off; `liu-simeone`: the baseline's offline optimum over all M uplinks,
    with all gains known in advance and no back-off."""
    contraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """mu/L of the baseline, the part of the optimality gap that an uplink closes: above 0, power is saved for late
    uplinks. 0 weighs all alike, the limit of a loss that is not convex and so has no mu."""
    baseline_accountant: Annotated[BaselineBudget, choice(BaselineBudget)] = BaselineBudget.OURS
    """What the baseline spends: `ours`: privacy.epsilon under [privacy]'s label, neighbours and accountant, as every
    run does; `published`: the same epsilon and delta by its own accountant for replaced records."""
    alpha_u: Scale | Literal["target", "largest"] = "target"
    """A number; `target`: channel noise alone meets channel_epsilon; `largest`: the most that keeps every s_i = 1."""
    channel_epsilon: Epsilon | Literal[0] = 0
    """Epsilon that alpha_u = "target" is sized for; 0 means privacy.epsilon."""
    backoff: Annotated[Backoff, choice(Backoff)] = Backoff.WORST_CASE
    aggregate: Annotated[Rescale, choice(Rescale)] = Rescale.RESCALED


class JammerConfig(Section):
    """[jammer] Who adds noise, and how much above the bound."""

    role: Annotated[JammerRole, choice(JammerRole)] = JammerRole.NONE
    factor: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = 1.0
    """By how much the jammer exceeds what the theorem asks for; the paper's experiments use 7."""
    factor_on: Annotated[FactorOn, choice(FactorOn)] = FactorOn.AMPLITUDE
    gain_db: Decibels = 0.0
    """Mean power gain of a dedicated or external jammer's link relative to the clients'."""
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that an external jammer is there in a sounding; clients do not send without a needed jammer."""
    snr_limit_db: Decibels | Literal["none"] = "none"
    """Limit on a dedicated or external jammer's energy, defined as for clients; a rotating client keeps its own."""
