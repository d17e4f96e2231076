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
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from fl.audit.runs.evidence import uplink_evidence
from fl.errors import ModelError, RunFolderError
from fl.learning.model import model_at
from fl.learning.server.algorithms import ServerState, advance
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.ledger import Ledger
from fl.privacy.liu_simeone import state_published
from fl.run.assemble import Parts
from fl.run.charging import ChargedUplink
from fl.run.config import RunConfig
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import BUDGET_SPENT, FINISHED, RunResult
from fl.run.folder import Checkpoint, RunFolder
from fl.run.journal import RunJournal
from fl.run.training import Training
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import Aggregate, Updates, Uplink, UplinkPlan
from fl.uplink.modes import Rescale

_LOG = logging.getLogger("airdp")


class Course:
    """One process's share of a run."""

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        parts: Parts,
        uplink: Uplink,
        training: Training,
        journal: RunJournal,
        on_uplink: Callable[[UplinkMetrics], None],
        *,
        resumed: bool,
    ) -> None:
        self.resumed = resumed
        self.folder, self.config, self.parts, self.uplink, self.on_uplink = folder, config, parts, uplink, on_uplink
        self.training, self.journal = training, journal
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
            self.uplink.last_look(state.uplink)
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
        self.folder.append_metrics(metrics.to_json())
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
        with closing(self.training.updates(model, uplink, clients)) as results:
            yield from zip(clients, results, strict=True)

    def _keep_evidence(self, plan: UplinkPlan, aggregate: Aggregate) -> None:
        if self.parts.canaries is None:
            return
        tau = self.config.privacy.clip_norm
        scale = tau if self.config.power.aggregate is Rescale.RESCALED else 1.0
        backgrounds = {client: self.training.backgrounds[client] for client in plan.senders}
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
