"""The seam between learning and whatever carries the updates."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.conditions import View
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Clipping, Label
from fl.uplink.jammer import JammerPlan
from fl.uplink.power_control import ClientPower
from hardware.radio.errors import HardwareError


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
class Contributions:
    """What each client put into an uplink. It depends on data: whoever runs the experiment may know it, nobody else.

    backoffs: s_i as used, float64 (K,); infinite for a silent client. transmit_energy: ||x_i||^2, float64 (K,).
    clipped: how many updates were shortened to the clip norm.
    """

    backoffs: NDArray[np.float64]
    transmit_energy: NDArray[np.float64]
    clipped: int


@dataclass(frozen=True)
class Aggregate:
    """What the server got. values: float32 (d,), ready to be added to the model. mechanism: as it really was.

    signal_norm, noise_norm: l2 norms of the two parts of `values`; None where nobody knows the exact sum.
    diagnostics: further numbers about the uplink, for the metrics. snapshot: arrays for pictures of it, where there is
    something to see.
    """

    values: NDArray[np.float32]
    mechanism: RoundMechanism
    contributions: Contributions
    signal_norm: float | None
    noise_norm: float | None
    diagnostics: dict[str, float] = field(default_factory=dict)
    snapshot: dict[str, NDArray[np.generic]] = field(default_factory=dict)


class NotSentError(HardwareError):
    """Sounding or planning failed. Nothing was sent, so it cost no privacy, and a new sounding may do better."""


class UnprotectedError(HardwareError):
    """An uplink failed after it was sent, or may have been, with less noise than was authorised.

    mechanism: as it really was, at worst. It is to be accounted for.
    """

    def __init__(self, message: str, mechanism: RoundMechanism) -> None:
        super().__init__(message)
        self.mechanism = mechanism


Updates = Iterable[tuple[int, BoundedUpdate]]
"""(client, update) pairs. They are taken one at a time, so that memory does not grow with the number of clients."""


Authorise = Callable[[], str | None]
"""Writes a plan's mechanism into the ledger; returns the row as it is on disk, None where there is no ledger."""


class Uplink(Protocol):
    """plan -> exchange, which calls `authorise` before the first sample leaves.

    channel_ages: what `plan` learnt about the channel does not keep, so updates must be ready before it is called.
    view: the adversary against whom its mechanisms hold.
    """

    @property
    def channel_ages(self) -> bool:
        """See the class."""
        ...

    @property
    def view(self) -> View:
        """See the class."""
        ...

    def started(self, run: str) -> None:
        """The run's ledger is open. run: hash of its first row, by which the run is known from now on."""
        ...

    def train(self, model: NDArray[np.float32], uplink: int) -> bool:
        """Whether clients train in processes of their own, from `model` (d,); what they send is then theirs alone.

        Where this is false whoever calls trains them, and gives their updates to `exchange`.
        """
        ...

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """Sound the channel and let every transmitter decide. `NotSentError`: it may work in another attempt."""
        ...

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """Carry the updates of `plan.senders`, in that order, to the server.

        authorise: writes the plan's mechanism into the ledger. It is called once, and until it has returned nothing
        leaves; what it raises is passed on. `HardwareError`: the exchange failed, what was authorised stays; see
        `UnprotectedError`.
        """
        ...

    def settled(self, mechanism: RoundMechanism) -> None:
        """What the last exchange was accounted for as is on disk."""
        ...

    def last_look(self, uplinks: int) -> None:
        """All uplinks of the run, so many, are done: is there anything that the next one would have shown?"""
        ...


class TrainedHere:
    """What an uplink has nothing to do with where this process trains all clients."""

    def started(self, run: str) -> None:
        """See `Uplink.started`."""

    def train(self, model: NDArray[np.float32], uplink: int) -> bool:
        """See `Uplink.train`."""
        return False

    def settled(self, mechanism: RoundMechanism) -> None:
        """See `Uplink.settled`."""

    def last_look(self, uplinks: int) -> None:
        """See `Uplink.last_look`."""


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
        promised = plan.mechanism.clipping(int(sizes[client]))
        check_update(update, promised, who=f"client {client}", uplink=plan.uplink, coordinates=coordinates)
        yield client, update
    missing = next(senders, None)
    if missing is not None:
        raise PrivacyError(f"client {missing} has no update for uplink {plan.uplink}: every sender must have one")


def check_update(update: BoundedUpdate, promised: Clipping, *, who: str, uplink: int, coordinates: int) -> None:
    """Raise `PrivacyError` where an update (d,), of `who`, was not bounded as the uplink's mechanism promises."""
    if update.values.shape != (coordinates,):
        raise PrivacyError(f"{who} has an update of shape {update.values.shape}: expected ({coordinates},)")
    if not update.clipping.covers(promised, Label.CLIENT):
        raise PrivacyError(f"{who} clipped to {update.clip_norm}: uplink {uplink} is planned for {promised.norm}")
    if promised.per_sample and not (
        update.clipping.covers(promised, Label.RECORD) and update.clipping.terms == promised.terms
    ):
        raise PrivacyError(
            f"{who} did not clip per sample, each of {promised.terms}: "
            f"uplink {uplink} is planned for record-level privacy"
        )
