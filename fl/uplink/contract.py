"""The seam between learning and whatever carries the updates."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.mechanism import RoundMechanism
from fl.uplink.jammer import JammerPlan
from fl.uplink.power_control import ClientPower
from hardware.errors import HardwareError


@dataclass(frozen=True)
class UplinkPlan:
    """Everything about an uplink that is fixed before data enters it, all of it public.

    gains: complex128 (K,). weights: p_i, float64 (K,). powers: what each client decided for the worst case.
    silent: the client that does not learn in this uplink because it jams, or None.
    postponed: soundings that were given up because a needed jammer was absent.
    mechanism: the worst case, to be authorised.
    """

    uplink: int
    alpha_u: float
    gains: NDArray[np.complex128]
    weights: NDArray[np.float64]
    powers: tuple[ClientPower, ...]
    jammer: JammerPlan
    silent: int | None
    postponed: int
    mechanism: RoundMechanism

    @property
    def senders(self) -> tuple[int, ...]:
        """Clients that learn and send."""
        return tuple(client for client in range(len(self.powers)) if client != self.silent)


@dataclass(frozen=True)
class Prepared:
    """Signals that stand ready at the antennas, summed as the air will sum them. Nothing has been received yet.

    cells: complex64, noiseless sum at the receiver's input (float32 coordinates for the ideal uplink, viewed as cells).
    backoffs: s_i as used, float64 (K,); infinite for a silent client. transmit_energy: ||x_i||^2, float64 (K,).
    clipped: how many updates were shortened.
    """

    cells: NDArray[np.complex64]
    coordinates: int
    backoffs: NDArray[np.float64]
    transmit_energy: NDArray[np.float64]
    clipped: int


@dataclass(frozen=True)
class Aggregate:
    """What the server got. values: float32 (d,), ready to be added to the model. mechanism: as it really was.

    signal_norm, noise_norm: l2 norms of the two parts of `values`, known in simulation. diagnostics: further numbers
    about the uplink, for the metrics. snapshot: arrays for pictures of it, where there is something to see.
    """

    values: NDArray[np.float32]
    mechanism: RoundMechanism
    signal_norm: float
    noise_norm: float
    diagnostics: dict[str, float] = field(default_factory=dict)
    snapshot: dict[str, NDArray[np.generic]] = field(default_factory=dict)


class UnprotectedError(HardwareError):
    """An uplink failed after it was sent, or may have been, with less noise than was authorised.

    mechanism: as it really was, at worst. It is to be accounted for.
    """

    def __init__(self, message: str, mechanism: RoundMechanism) -> None:
        super().__init__(message)
        self.mechanism = mechanism


class Uplink(Protocol):
    """plan -> prepare -> (the caller authorises `plan.mechanism` in the ledger) -> exchange.

    channel_ages: what `plan` learnt about the channel does not keep, so updates must be ready before it is called.
    """

    @property
    def channel_ages(self) -> bool:
        """See the class."""
        ...

    def plan(self, uplink: int) -> UplinkPlan:
        """Sound the channel and let every transmitter decide."""
        ...

    def prepare(self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]) -> Prepared:
        """Turn (client, update) pairs of `plan.senders`, in that order, into signals. Memory does not grow with K."""
        ...

    def exchange(self, plan: UplinkPlan, prepared: Prepared) -> Aggregate:
        """Transmit and receive. `HardwareError`: it failed, what was authorised stays; see `UnprotectedError`."""
        ...


def cells_needed(coordinates: int) -> int:
    """Two coordinates a cell; an odd number leaves the last Q empty."""
    return (coordinates + 1) // 2


def as_cells(values: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Coordinates (d,) as cells ((d+1)//2,): a view where d is even, else a padded copy."""
    flat = values if values.size % 2 == 0 else np.append(values, np.float32(0))
    return np.ascontiguousarray(flat).view(np.complex64)


def as_coordinates(cells: NDArray[np.complex64], coordinates: int) -> NDArray[np.float32]:
    """Inverse of `as_cells`."""
    return cells.view(np.float32)[:coordinates]


def checked_updates(
    plan: UplinkPlan,
    updates: Iterable[tuple[int, BoundedUpdate]],
    *,
    coordinates: int,
    clip_norm: float,
    sizes: NDArray[np.int64],
) -> Iterator[tuple[int, BoundedUpdate]]:
    """`updates` one at a time; raises `PrivacyError` where one is not what the plan's mechanism promises.

    Exactly the plan's senders, each once: a silent client or a second update would send what nobody is charged for.
    """
    senders = iter(plan.senders)
    for client, update in updates:
        if client != next(senders, None):
            raise PrivacyError(
                f"client {client} is not the next sender of uplink {plan.uplink}: expected {plan.senders}, each once"
            )
        _check_update(plan, client, update, coordinates, clip_norm, int(sizes[client]))
        yield client, update
    missing = next(senders, None)
    if missing is not None:
        raise PrivacyError(f"client {missing} has no update for uplink {plan.uplink}: every sender must have one")


def _check_update(
    plan: UplinkPlan, client: int, update: BoundedUpdate, coordinates: int, clip_norm: float, size: int
) -> None:
    if update.values.shape != (coordinates,):
        raise PrivacyError(f"client {client} has an update of shape {update.values.shape}: expected ({coordinates},)")
    if update.clip_norm > clip_norm:
        raise PrivacyError(
            f"client {client} clipped to {update.clip_norm}: uplink {plan.uplink} is planned for {clip_norm}"
        )
    if plan.mechanism.record_bounded and update.record_terms != size:
        raise PrivacyError(
            f"client {client} did not clip per sample: uplink {plan.uplink} is planned for record-level privacy"
        )
