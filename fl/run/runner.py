"""The run: uplink after uplink, with the ledger ahead of every transmission and a checkpoint after it.

Order within an uplink, and what a crash between two steps means:

    plan, budget          nothing has left: costs no privacy, done again
    ledger: authorise     from here on the uplink is spent, without the jammer's noise
    exchange              the air
    ledger: account       it becomes what was measured, with the jammer's noise where that was on the air
    server step, metrics
    checkpoint            from here on a resumed run goes on with the next uplink
    captures, noise       of the uplink, where it was over radios (`fl.run.journal`)

Clients train before the plan where the channel would age meanwhile, else while updates are exchanged, one after the
other: then only those in work are in memory.
"""

import hashlib
import logging
import math
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fl.audit.canaries import canaried_update
from fl.audit.evidence import uplink_evidence
from fl.errors import ModelError, RunFolderError
from fl.learning.model import model_at
from fl.learning.server.algorithms import ServerState, advance
from fl.learning.workforce import Workforce, cores
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.conditions import View
from fl.privacy.ledger import Ledger, read_ledger
from fl.privacy.liu_simeone import state_published
from fl.privacy.statement import PrivacyStatement, json_number
from fl.random_streams import Stream, generator
from fl.run.apart.attendance import NodesElsewhere, attending
from fl.run.apart.uplink import make_apart_uplink
from fl.run.assemble import Parts, assemble, assemble_server
from fl.run.charging import ChargedUplink, begin_folder
from fl.run.config import RunConfig
from fl.run.folder import ALLOCATION, Checkpoint, RunFolder, created, is_unused, locked
from fl.run.journal import RunJournal, journal_of
from fl.tracking.tracker import Tracked, flattened, make_trackers, tracking
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import Aggregate, Updates, Uplink, UplinkPlan
from fl.uplink.liu_simeone import Allocation
from fl.uplink.modes import Rescale

_LOG = logging.getLogger("airdp")
FINISHED, BUDGET_SPENT = "finished", "budget spent"
_NO_NUMBERS = ("label", "score", "diagnostics")


@dataclass(frozen=True)
class UplinkMetrics:
    """One line of metrics.jsonl: the model after the uplink, epsilon spent until then, and what power control did.

    signal_norm, noise_norm: l2 norms of the aggregate's two parts where they are known; step_norm: of the aggregate,
    which is the first model step.
    weight_received: sum of p_i/s_i. backed_off, clipped: clients. score: what `accuracy` is.
    """

    uplink: int
    rounds: int
    accuracy: float
    loss: float
    test_loss: float
    epsilon: float
    label: str
    sigma: float
    alpha_u: float
    alpha_cj: float
    jamming_client: int | None
    postponed: int
    backoff_max: float
    backed_off: int
    clipped: int
    weight_received: float
    signal_norm: float | None
    noise_norm: float | None
    step_norm: float
    seconds: float
    diagnostics: dict[str, float]
    score: str = "accuracy"

    @property
    def shown(self) -> str:
        """The score in words: a percentage, or R² as it is."""
        return f"{100 * self.accuracy:5.1f} %" if self.score == "accuracy" else f"{self.accuracy:.4f}"


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run. privacy: the claimed label first, then the others that hold or are published.

    allocation, published: of a run under a baseline's power control, what it planned for all uplinks, and the epsilon
    that its authors would state for what was sent. transmissions_unaccounted: of those that were charged, how many were
    cut off, and count without the jammer. score: what `accuracy` is. model: with the parameters of the last uplink.
    """

    out: Path
    status: str
    accuracy: float
    loss: float
    test_loss: float
    uplinks: int
    rounds: int
    transmissions_charged: int
    transmissions_unaccounted: int
    model_sha256: str
    privacy: tuple[PrivacyStatement, ...]
    allocation: Allocation | None
    published: PrivacyStatement | None
    score: str
    model: nn.Module = field(repr=False, compare=False)

    @property
    def history(self) -> dict[str, NDArray[np.float64]]:
        """Every number of metrics.jsonl by name, an entry for each uplink; NaN where there was none."""
        kept = RunFolder(self.out).metrics()
        rows = [{**row, **row["diagnostics"]} for row in kept]
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _NO_NUMBERS]
        return {name: np.array([_as_float(row.get(name)) for row in rows]) for name in names}

    def _repr_html_(self) -> str:
        """A table and the learning curve, for notebooks."""
        claimed = self.privacy[0]
        facts = {
            f"test {self.score}": f"{self.accuracy:.4g}",
            "uplinks": f"{self.uplinks} ({self.status})",
            **{f"ε, {claimed.label.value}, {name.value}": f"{value:.4g}" for name, value in claimed.epsilon.items()},
            "ε holds for": claimed.conditions,
            "folder": str(self.out),
        }
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        picture = RunFolder(self.out).figures_path / "learning.png"
        if not picture.exists():
            return f"<table>{rows}</table>"
        encoded = b64encode(picture.read_bytes()).decode()
        return f'<table>{rows}</table><img alt="learning curve" src="data:image/png;base64,{encoded}">'

    def to_json(self) -> dict[str, Any]:
        """The object that `airdp run --json` prints."""
        claimed = self.privacy[0].to_json()
        return {
            "accuracy": self.accuracy,
            "score": self.score,
            "loss": None if math.isnan(self.loss) else json_number(self.loss),
            "test_loss": json_number(self.test_loss),
            "rounds": self.rounds,
            "uplinks": self.uplinks,
            "epsilon": claimed["epsilon"],
            "label": claimed["label"],
            "neighbours": claimed["neighbours"],
            "view": claimed["view"],
            "delta": claimed["delta"],
            "delta_split": claimed["delta_split"],
            "confidence": claimed["confidence"],
            "trust": claimed["trust"],
            "sigma_origin": claimed["sigma_origin"],
            "privacy": [statement.to_json() for statement in self.privacy],
            "transmissions_charged": self.transmissions_charged,
            "transmissions_unaccounted": self.transmissions_unaccounted,
            "status": self.status,
            "model_sha256": self.model_sha256,
            **({} if self.allocation is None else {"allocation": self.allocation.to_json()}),
            **({} if self.published is None else {"published": self.published.to_json()}),
            "out": str(self.out),
        }


def default_folder(config: RunConfig) -> Path:
    """Where a run goes that nobody has given a place: runs/NAME-TIME."""
    return Path("runs") / f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


def run_experiment(
    config: RunConfig,
    out: Path | None,
    *,
    resume: bool = False,
    on_uplink: Callable[[UplinkMetrics], None] | None = None,
    elsewhere: NodesElsewhere | None = None,
) -> RunResult:
    """Run `config` in the folder `out` (default: runs/NAME-TIME); with `resume`, go on where its run stopped.

    elsewhere: where clients and jammer are processes of their own, how they are reached.
    """
    if out is None:
        if resume:
            raise RunFolderError("--resume needs --out: the folder of the run that shall go on")
        out = default_folder(config)
    folder = RunFolder(out)
    fresh = is_unused(out)
    if not fresh:
        _check_same_run(folder, config, resume=resume)
    trackers = make_trackers(config.tracking.to)
    with ExitStack() as stack:
        parts = _parts(config, elsewhere, stack)
        if not fresh:
            parts.inputs.require_same(folder)
            stack.enter_context(locked(folder))
        # Before the radios: they are closed first then, and all that is measured depends on its threads alike.
        workforce = stack.enter_context(Workforce(config.local.workers or cores()))
        # Radios that do not answer, or are not what they should be, leave nothing behind.
        journal = stack.enter_context(journal_of(folder, config))
        uplink = stack.enter_context(parts.open_uplink(journal))
        if fresh:
            _create(folder, config, parts, uplink.view)
            stack.enter_context(locked(folder))
        told = stack.enter_context(
            tracking(trackers, _tracked(folder, config, uplink), everything=config.tracking.metrics == "all")
        )

        def say(metrics: UplinkMetrics) -> None:
            told.uplink(asdict(metrics))
            if on_uplink is not None:
                on_uplink(metrics)

        going = _Run(folder, config, parts, uplink, workforce, journal, say, resumed=not fresh)
        with going.ledger:
            result = going.go()
        told.finish(result.status, {"accuracy": result.accuracy, "test_loss": result.test_loss})
        return result


def _tracked(folder: RunFolder, config: RunConfig, uplink: Uplink) -> Tracked:
    """What trackers are told of a run; an epsilon needs all of [privacy], its label and its view beside it."""
    settings = {**flattened(config.model_dump(mode="json")), "label": config.label.value, "view": uplink.view.value}
    return Tracked(config.name, folder.path, settings)


def _parts(config: RunConfig, elsewhere: NodesElsewhere | None, stack: ExitStack) -> Parts:
    if elsewhere is None:
        return assemble(config)
    attendance = stack.enter_context(attending(config, elsewhere))
    return assemble_server(
        config, attendance.sizes, lambda calibration, d: make_apart_uplink(config, attendance, calibration, d)
    )


def _check_same_run(folder: RunFolder, config: RunConfig, *, resume: bool) -> None:
    held = folder.config()
    if held.digest() != config.digest():
        others = ", ".join(held.differing_keys(config))
        raise RunFolderError(f"{folder.path} holds another run (differs in {others}): choose another folder with --out")
    # What never sent anything, because its radios failed, need not be in the way of another try.
    if not resume and _has_sent(folder):
        raise RunFolderError(
            f"{folder.path} already holds this run: add --resume (in Python: resume=True) to go on, or choose another "
            "folder with --out"
        )


def _has_sent(folder: RunFolder) -> bool:
    return folder.checkpoint_path.exists() or read_ledger(folder.ledger_path).authorised > 0


def _create(folder: RunFolder, config: RunConfig, parts: Parts, view: View) -> None:
    with created(folder.path) as scratch:
        begin_folder(scratch, config, parts.inputs, parts.sizes, view)
        scratch.write_json("partition.json", {"data_sha256": parts.dataset.fingerprint(), **parts.statistics})
        if parts.allocation is not None:
            scratch.write_json(ALLOCATION, parts.allocation.to_json())


def _as_float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _json_ready(value: Any) -> Any:
    """`value` with strings that `float` reads back for the numbers that JSON has not: inf, -inf, nan."""
    if isinstance(value, dict):
        return {key: _json_ready(part) for key, part in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class _Run:
    """One process's share of a run."""

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        parts: Parts,
        uplink: Uplink,
        workforce: Workforce,
        journal: RunJournal,
        on_uplink: Callable[[UplinkMetrics], None],
        *,
        resumed: bool,
    ) -> None:
        self.resumed = resumed
        self.folder, self.config, self.parts, self.uplink, self.on_uplink = folder, config, parts, uplink, on_uplink
        self.workforce, self.journal = workforce, journal
        self.backgrounds: dict[int, NDArray[np.float64]] = {}
        # What does not fit is refused before the ledger is opened, because opening adds a row to it.
        self._check_folder()
        self.checkpoint = self._load_checkpoint()
        self.ledger = Ledger.open(
            folder.ledger_path,
            resumed=resumed,
            config_sha256=config.digest(),
            seen=None if self.checkpoint is None else self.checkpoint.ledger_head,
        )
        self.air = ChargedUplink(uplink, self.ledger, journal, config, parts.sizes)

    def _check_folder(self) -> None:
        partition = self.folder.read_json("partition.json")
        if not isinstance(partition, dict) or partition.get("data_sha256") != self.parts.dataset.fingerprint():
            raise RunFolderError(
                f"{self.folder.path} was run on other data: give the same data, or choose another folder with --out"
            )
        self.folder.metrics()

    def _load_checkpoint(self) -> Checkpoint | None:
        checkpoint = self.folder.load_checkpoint()
        if checkpoint is not None and checkpoint.model.shape != self.parts.start.shape:
            raise RunFolderError(
                f"{self.folder.checkpoint_path} has a model of shape {checkpoint.model.shape}, the run one of "
                f"{self.parts.start.shape}: the model's code has changed; restore it or start anew elsewhere"
            )
        return checkpoint

    def go(self) -> RunResult:
        """All remaining uplinks, then figures and result."""
        self.uplink.started(self.ledger.first_hash)
        start = Checkpoint(0, self.parts.start, "")
        self.folder.keep_metrics_until((self.checkpoint or start).uplink)
        state, status = self.checkpoint or start, FINISHED
        if state.uplink < self.config.last_uplink:
            self.journal.log.open()
        if not state.uplink:
            self.journal.start(state.model)
        try:
            while state.uplink < self.config.last_uplink:
                after = self._try_uplink(state)
                if after is None:
                    status = BUDGET_SPENT
                    break
                state = after
        except BaseException:
            # Of an interrupted run too: pictures of what was done, where that is possible.
            self._draw_what_is_there()
            raise
        return self._finish(state, status)

    def _draw_what_is_there(self) -> None:
        from fl.run.figures import draw_run

        try:
            draw_run(self.folder)
        except Exception as error:  # why the run ended is worth more than a picture
            _LOG.debug("the pictures of the run so far could not be drawn: %s", error)

    def _try_uplink(self, state: Checkpoint) -> Checkpoint | None:
        """The next uplink, or None where the budget does not allow it.

        A radio that fails within it is tried again from a new sounding; what was authorised until then stays charged.
        """
        # A real channel does not wait for training: where it ages, updates are ready before it is sounded.
        number = state.uplink + 1
        elsewhere = self.uplink.train(state.model, number)
        early = self._ages and not elsewhere
        ready = dict(self._updates(state.model, number, range(len(self.parts.clients)))) if early else None

        def carry(plan: UplinkPlan) -> Checkpoint | None:
            if self.air.exceeds_budget(plan.mechanism):
                return None
            if elsewhere:
                return self._uplink(state, plan, ())
            if ready is None:
                # Closed however the uplink ends: training that is under way has PyTorch on one thread.
                with closing(self._updates(state.model, number, plan.senders)) as updates:
                    return self._uplink(state, plan, updates)
            return self._uplink(state, plan, ((client, ready[client]) for client in plan.senders))

        return attempt_uplink(self.uplink, number, self.config.radio.attempts, carry)

    @property
    def _ages(self) -> bool:
        return self.uplink.channel_ages

    def _uplink(self, state: Checkpoint, plan: UplinkPlan, updates: Updates) -> Checkpoint:
        started = time.perf_counter()
        aggregate = self.air.exchange(plan, updates)
        self._keep_evidence(plan, aggregate)
        before_step = ServerState(state.model, state.memory)
        stepped = advance(self.parts.algorithm, before_step, aggregate.values, plan.uplink)
        if not np.isfinite(stepped.model).all():
            raise ModelError(
                f"the model is not finite after uplink {plan.uplink}: noise or updates are too large for float32; "
                "check privacy.epsilon, privacy.clip_norm and power.alpha_u"
            )
        metrics = self._metrics(stepped.model, plan, aggregate, started)
        self.folder.append_metrics(_json_ready(asdict(metrics)))
        if aggregate.snapshot:
            self.folder.save_snapshot(plan.uplink, aggregate.snapshot)
        after = Checkpoint(plan.uplink, stepped.model, self.ledger.head, stepped.memory)
        self.folder.save_checkpoint(after)
        self.journal.released(aggregate.values)
        self.on_uplink(metrics)
        return after

    def _updates(
        self, model: NDArray[np.float32], uplink: int, clients: Sequence[int]
    ) -> Generator[tuple[int, BoundedUpdate], None, None]:
        def train(client: int) -> BoundedUpdate:
            if self.parts.canaries is not None:
                return self._canaried(model, uplink, client)
            return self.parts.local.update(
                model,
                self.parts.clients[client],
                generator(self.config.seed, Stream.LOCAL, uplink, client),
                origin=f"client {client}'s update for uplink {uplink}",
            )

        with closing(self.workforce.in_order(train, clients)) as results:
            yield from zip(clients, results, strict=True)

    def _canaried(self, model: NDArray[np.float32], uplink: int, client: int) -> BoundedUpdate:
        """An update with canaries in it; what the client's other records send is kept for the audit."""
        canaries, local, data = self.parts.canaries, self.parts.local, self.parts.clients[client]
        if canaries is None:
            raise ModelError("the run has no canaries")
        made = canaried_update(
            canaries, client, local, model, data, origin=f"client {client}'s update for uplink {uplink}"
        )
        self.backgrounds[client] = made.background
        return made.update

    def _keep_evidence(self, plan: UplinkPlan, aggregate: Aggregate) -> None:
        if self.parts.canaries is None:
            return
        tau = self.config.privacy.clip_norm
        scale = tau if self.config.power.aggregate is Rescale.RESCALED else 1.0
        backgrounds = {client: self.backgrounds[client] for client in plan.senders}
        self.folder.save_evidence(plan.uplink, uplink_evidence(self.parts.canaries, aggregate, backgrounds, scale, tau))

    def _metrics(
        self, model: NDArray[np.float32], plan: UplinkPlan, aggregate: Aggregate, started: float
    ) -> UplinkMetrics:
        test = self.parts.scores(model, self.parts.test)
        backoffs, calibration = aggregate.contributions.backoffs[list(plan.senders)], self.parts.calibration
        return UplinkMetrics(
            uplink=plan.uplink,
            rounds=plan.uplink * self.parts.algorithm.steps_per_uplink,
            accuracy=test.accuracy,
            loss=self._training_loss(model),
            test_loss=test.loss,
            epsilon=self.air.epsilon(),
            label=self.config.label.value,
            sigma=aggregate.mechanism.sigma,
            alpha_u=plan.alpha_u,
            alpha_cj=plan.jammer.alpha,
            jamming_client=plan.silent,
            postponed=plan.postponed,
            backoff_max=float(backoffs.max()),
            backed_off=int(np.count_nonzero(backoffs > 1)),
            clipped=aggregate.contributions.clipped,
            weight_received=float((plan.weights[list(plan.senders)] / backoffs).sum()),
            signal_norm=aggregate.signal_norm,
            noise_norm=aggregate.noise_norm,
            step_norm=float(np.linalg.norm(aggregate.values.astype(np.float64))),
            seconds=time.perf_counter() - started,
            score=self.parts.dataset.target.score,
            diagnostics={**aggregate.diagnostics, **({} if calibration is None else calibration.metrics())},
        )

    def _training_loss(self, model: NDArray[np.float32]) -> float:
        """Of all clients' data; not known where they keep it to themselves."""
        return self.parts.scores(model, self.parts.train).loss if self.parts.clients else math.nan

    def _finish(self, state: Checkpoint, status: str) -> RunResult:
        test = self.parts.scores(state.model, self.parts.test)
        mechanisms = list(self.ledger.mechanisms.values())
        delta, allocation = self.config.privacy.delta, self.parts.allocation
        result = RunResult(
            out=self.folder.path,
            status=status,
            accuracy=test.accuracy,
            loss=self._training_loss(state.model),
            test_loss=test.loss,
            uplinks=state.uplink,
            rounds=state.uplink * self.parts.algorithm.steps_per_uplink,
            transmissions_charged=len(mechanisms),
            transmissions_unaccounted=self.ledger.unaccounted,
            model_sha256=hashlib.sha256(state.model.tobytes()).hexdigest(),
            privacy=self.air.statements(),
            allocation=allocation,
            published=None if allocation is None else state_published(mechanisms, self.parts.sizes, delta=delta),
            score=self.parts.dataset.target.score,
            model=model_at(self.parts.model, state.model),
        )
        from fl.run.figures import draw_run

        draw_run(self.folder)
        self.folder.write_json("result.json", result.to_json())
        return result
