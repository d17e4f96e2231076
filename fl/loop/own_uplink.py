"""`open_uplink`: any air that a config describes, for a loop of one's own.

    with open_uplink("loopback", sizes=[300, 200, 100, 100, 80], coordinates=w.size, out="runs/mine") as air:
        while air.remaining:
            w += air.send([train(client, w) for client in range(5)]).values
            print(air.epsilon)

`send` does what a run does: clip, sound, plan, write the worst case into the ledger, transmit, receive, account. The
folder holds config, versions and ledger, so `airdp ledger runs/mine` recomputes epsilon from it, and `airdp live
runs/mine` shows the air, meanwhile and afterwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError, RunFolderError
from fl.learning.settings import LocalMode
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.privacy.ledger import Ledger
from fl.privacy.statement import PrivacyStatement
from fl.run.assemble import calibration_of, make_allocation, make_uplink
from fl.run.charging import ChargedUplink, begin_folder
from fl.run.config import RunConfig, resolve_config
from fl.run.folder import RunFolder, created, is_unused, locked, refuse_links
from fl.run.inputs import gather
from fl.run.journal import journal_of
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import Aggregate, UplinkPlan

Update = "NDArray[np.floating[Any]] | torch.Tensor | BoundedUpdate"
"""(d,). One that is not bounded yet is clipped to `privacy.clip_norm`."""


class OwnUplink:
    """Made by `open_uplink`, and usable within its block."""

    def __init__(self, charged: ChargedUplink, folder: RunFolder, coordinates: int, done: int) -> None:
        self._charged, self._folder, self._coordinates, self._done = charged, folder, coordinates, done
        self._closed = False

    @property
    def config(self) -> RunConfig:
        """As resolved."""
        return self._charged.config

    @property
    def ledger(self) -> Ledger:
        """Of all that was sent."""
        return self._charged.ledger

    @property
    def remaining(self) -> int:
        """Uplinks until those for which noise is sized (`uplink.uplinks`) are made."""
        return max(0, self.config.last_uplink - self._done)

    @property
    def epsilon(self) -> float:
        """Spent until now under the config's label, neighbours, delta and accountant; see `privacy` for all of it."""
        return self._charged.epsilon()

    @property
    def privacy(self) -> tuple[PrivacyStatement, ...]:
        """What was spent under every label, the claimed one first, each with its conditions."""
        return self._charged.statements()

    def send(self, updates: "Sequence[Any] | Callable[[int], Any]") -> Aggregate:
        """One uplink with an update (d,) of each client; returns what the server received, in `values` (d,).

        updates: one for each client, or a function that makes client i's when it is its turn: then only one is in
        memory. Arrays and tensors are clipped to tau here. For `local.mode = "record"` give what
        `fl.privacy.clipping.mean_of_clipped` returns: only per-sample clipping earns that label.

        Raises `PrivacyError` before anything is sent where the budget does not allow it, where all uplinks that noise
        is sized for are made, and where an update is not finite. A radio that fails is tried again from a new sounding
        (`radio.attempts`).
        """
        if self._closed:
            raise PrivacyError("this air is closed, and nothing was sent: call send within the block of open_uplink")
        number = self._done + 1
        if not self.remaining:
            raise PrivacyError(
                f"uplink {number} is one more than noise is sized for (uplink.uplinks = {self.config.uplink.uplinks}); "
                "nothing was sent: raise it before the first uplink"
            )
        aggregate = attempt_uplink(
            self._charged.uplink, number, self.config.radio.attempts, self._carrier(self._source(updates))
        )
        if aggregate.snapshot:
            self._folder.save_snapshot(number, aggregate.snapshot)
        self._charged.journal.released(aggregate.values)
        self._done = number
        return aggregate

    def _source(self, updates: "Sequence[Any] | Callable[[int], Any]") -> Callable[[int], BoundedUpdate]:
        """Where client i's bounded update comes from."""
        clients = len(self._charged.sizes)
        if not callable(updates):
            given = _in_order(updates, clients)
            if len(given) != clients:
                raise PrivacyError(f"{len(given)} updates for {clients} clients: expected one for each")
            ready = [self._bounded(client, given[client]) for client in range(clients)]
            return lambda client: ready[client]
        make = updates
        if not self._charged.uplink.channel_ages:
            return lambda client: self._bounded(client, make(client))
        # A real channel does not wait: where it ages, updates are ready before it is sounded.
        made = [self._bounded(client, make(client)) for client in range(clients)]
        return lambda client: made[client]

    def _carrier(self, update_of: Callable[[int], BoundedUpdate]) -> Callable[[UplinkPlan], Aggregate]:
        def carry(plan: UplinkPlan) -> Aggregate:
            if self._charged.exceeds_budget(plan.mechanism):
                raise PrivacyError(
                    f"uplink {plan.uplink} would exceed privacy.budget_epsilon = "
                    f"{self.config.privacy.budget_epsilon:g} (spent: {self.epsilon:.4g}); nothing was sent"
                )
            return self._charged.exchange(plan, ((client, update_of(client)) for client in plan.senders))

        return carry

    def _bounded(self, client: int, update: Any) -> BoundedUpdate:
        if isinstance(update, BoundedUpdate):
            return update
        if self.config.local.mode is LocalMode.RECORD:
            raise PrivacyError(
                f"client {client}: local.mode = 'record' needs updates from fl.privacy.clipping.mean_of_clipped, whose "
                "per-sample terms were clipped; a bare array proves nothing about records"
            )
        try:
            values = update.detach().cpu().numpy() if hasattr(update, "detach") else np.asarray(update)
        except (TypeError, ValueError) as error:
            raise PrivacyError(f"client {client}'s update is no array of numbers: {error}") from error
        if values.shape != (self._coordinates,):
            raise PrivacyError(f"client {client}'s update has shape {values.shape}: expected ({self._coordinates},)")
        return clip_update(values, self.config.privacy.clip_norm, origin=f"client {client}'s update")


def _in_order(updates: Any, clients: int) -> Sequence[Any]:
    """Updates of client 0, 1, ..., from whatever holds them in this order, or by number."""
    try:
        if isinstance(updates, Mapping) and updates.keys() == set(range(clients)):
            return [updates[client] for client in range(clients)]
        return list(updates)
    except TypeError as error:
        raise PrivacyError(
            f"updates are a {type(updates).__name__}: expected one for each client, or a function of its number"
        ) from error


def _checked_sizes(sizes: Any, coordinates: Any) -> NDArray[np.int64]:
    """Records of each client; a size that is no whole number would weigh clients otherwise than it says."""
    counts = np.asarray(sizes)
    whole = counts.ndim == 1 and counts.size and counts.dtype.kind in "iu" and int(counts.min()) >= 1
    if not whole or not isinstance(coordinates, int | np.integer) or coordinates < 1:
        raise PrivacyError(f"sizes {sizes} and {coordinates} coordinates: expected whole numbers above 0")
    return counts.astype(np.int64)


@contextmanager
def open_uplink(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    sizes: Sequence[int],
    coordinates: int,
    out: Path | str,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> Iterator[OwnUplink]:
    """The air that `config` describes, for updates of `coordinates` (d) from as many clients as there are `sizes`.

    config: as for `fl.run`; its sections on data, model and algorithm do not matter here. sizes: n_i, how many records
    each client has; public, they weigh the clients. out: a new folder for ledger and config. overrides: keys by dotted
    name. resume: go on with the ledger in `out`, after the last uplink that it charges; what became of the model is the
    caller's to keep.
    """
    counts = _checked_sizes(sizes, coordinates)
    resolved = resolve_config(config, {**(overrides or {}), "partition.clients": len(counts)})
    folder = RunFolder(Path(out))
    fresh = is_unused(folder.path)
    if not fresh and not resume:
        raise RunFolderError(f"{folder.path} is not empty: choose another `out`, or resume=True to go on with it")
    refuse_links(folder.path)
    inputs = gather(resolved, None)
    calibration = calibration_of(resolved, inputs)
    allocation = make_allocation(resolved, counts, coordinates)
    opening = make_uplink(resolved, inputs.lab, calibration, counts, allocation, coordinates)
    with ExitStack() as stack:
        if not fresh:
            inputs.require_same(folder)
            stack.enter_context(locked(folder))
        journal = stack.enter_context(journal_of(folder, resolved))
        # Radios that do not answer leave nothing behind.
        uplink = stack.enter_context(opening(journal))
        if fresh:
            with created(folder.path) as scratch:
                begin_folder(scratch, resolved, inputs, counts, uplink.view)
            stack.enter_context(locked(folder))
        ledger = stack.enter_context(
            Ledger.open(folder.ledger_path, resumed=not fresh, config_sha256=resolved.digest(), seen=None)
        )
        done = max((mechanism.uplink for mechanism in ledger.mechanisms.values()), default=0)
        journal.log.open()
        opened = OwnUplink(ChargedUplink(uplink, ledger, journal, resolved, counts), folder, coordinates, done)
        try:
            yield opened
        finally:
            opened._closed = True
