"""How delta is divided: what a mechanism may use, and what is set aside for measured bounds that may fail.

delta = delta_mechanism + delta_bounds. Over radios every uplink rests on measured bounds: the receiver's noise, each
client's gain, mirror image and linearity, and the jammer's gain and mirror image. They may all fail with at most
`privacy.bounds_share` of delta over all M uplinks, which gives the confidence of each. Uplinks that are sent again rest
on bounds of their own, and are charged beyond that: statements add up what was really authorised.
"""

from dataclasses import dataclass

from fl.errors import ConfigError
from fl.run.config import RunConfig, UplinkKind
from fl.uplink.jammer import JammerRole

SMALLEST_FAILURE = 1e-13
"""Below it 1 - failure is not exact enough as a number."""


@dataclass(frozen=True)
class DeltaSplit:
    """bounds: planned for measured bounds. confidence: of each of them, None where nothing is measured."""

    total: float
    bounds: float
    confidence: float | None

    @property
    def mechanism(self) -> float:
        """For which noise is sized. Where bounds leave nothing every epsilon is infinite, and sizing uses the total."""
        left = self.total - self.bounds
        return left if left > 0 else self.total


def split_delta(config: RunConfig) -> DeltaSplit:
    """The split that a config asks for; `ConfigError` where no measurement is that certain."""
    delta, uplinks = config.privacy.delta, config.uplink.uplinks
    if config.uplink.kind is not UplinkKind.RADIO:
        return DeltaSplit(delta, 0.0, None)
    count = _bounds_per_uplink(config)
    if config.radio.confidence != "auto":
        return DeltaSplit(delta, uplinks * count * (1.0 - config.radio.confidence), config.radio.confidence)
    failure = config.privacy.bounds_share * delta / (uplinks * count)
    if failure < SMALLEST_FAILURE:
        raise ConfigError(
            f"privacy.delta = {delta:g} leaves {failure:.2g} for each of {uplinks * count} measured bounds, and no "
            f"measurement is that certain: expected {SMALLEST_FAILURE:g} or more; raise delta or privacy.bounds_share"
        )
    return DeltaSplit(delta, config.privacy.bounds_share * delta, 1.0 - failure)


def _bounds_per_uplink(config: RunConfig) -> int:
    jammers = int(config.jammer.role is not JammerRole.NONE)
    # The noise, within the band and at all frequencies; gain, mirror image and linearity of every client; gain and
    # mirror image of a jammer, and its linearity by a calibration.
    return 2 + 3 * config.partition.clients + jammers * (3 if config.radio.calibration else 2)
