"""The convergence bound of a run from its folder: constants from the run's model and data, the rest from its record.

The formulae are in `fl.learning.theory.convergence`. Constants that are not given are estimated: the run's parts are
made again from its config, and gradients and Hessians of every client are taken at a few points around the run's
course. A largest value over a few points is at most the supremum that the theorem needs, so an estimate flatters the
bound.

All clients' data are read in the clear and the ledger is not charged: a diagnostic for whoever holds the data, which
the run's epsilon does not cover.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, ModelError, RunFolderError
from fl.import_path import code_of
from fl.learning.server.algorithms import UpcycledFL
from fl.learning.settings import LocalMode
from fl.learning.theory.convergence import Bound, Constants, Form, UplinkRecord, convergence_bound
from fl.learning.theory.curvature import hessian_extremes, loss_and_gradient
from fl.learning.workforce import Workforce, cores
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.random_streams import Stream, generator
from fl.run.assemble import Parts, assemble
from fl.run.config import AlgorithmName, RunConfig, UplinkKind
from fl.run.folder import Checkpoint, RunFolder
from fl.run.learner import make_algorithm
from fl.uplink.modes import Backoff, Rescale

HESSIAN_STEPS = 16
"""Products per client and point: the extremes of the MLP's Hessian are then within about 3 % of what 40 give."""
OPTIMUM = "optimum"
GIVEN = ("lipschitz", "dissimilarity", "strong_convexity", "step_bound", "gradient_bound", "heterogeneity", OPTIMUM)
"""What may be given instead of estimated; `optimum` is f(w*), 0 unless given, which no cross-entropy is below."""
_HOLDS = {
    AlgorithmName.UPCYCLED: "Theorem 5",
    AlgorithmName.FEDPROX: "analogue of Theorem 5 without upcycling (C2 = C3 = 0), not proved in the paper",
    AlgorithmName.FEDAVG: "none: FedAvg has no proximal term (mu = 0), on which the theorem rests",
}


def what_holds(config: RunConfig) -> str:
    """What the theorem says about the algorithm of a run."""
    name = config.algorithm.name
    return _HOLDS[name] if isinstance(name, AlgorithmName) else "none: the theorem is not about this algorithm"


@dataclass(frozen=True, eq=False)
class EstimatedConstants(Constants):
    """given: fields that were not estimated. squared_gradients: ||grad f||^2 at the two models that the run kept.

    points: at how many models gradients were taken; hessian_points: Hessians. smallest_eigenvalue: of any client's
    Hessian at any of them, NaN where none was taken.
    """

    given: frozenset[str] = field(kw_only=True)
    squared_gradients: Mapping[str, float] = field(kw_only=True)
    points: int = field(kw_only=True)
    hessian_points: int = field(kw_only=True)
    smallest_eigenvalue: float = field(kw_only=True)

    @property
    def caveat(self) -> str:
        """What must be read together with the numbers; q is the run's own, and no estimate."""
        if {*GIVEN} - {"step_bound", OPTIMUM} <= self.given:
            return "all constants are given"
        hessians = f", Hessians at {self.hessian_points} of them" if self.hessian_points else ""
        return f"estimated at {self.points} points{hessians}: the true constants may be larger, and rho smaller"


@dataclass(frozen=True)
class _Place:
    """A model at which the losses are looked at. vector: float32 (d,)."""

    name: str
    vector: NDArray[np.float32]
    hessian: bool


@dataclass(frozen=True, eq=False)
class _View:
    """What was seen there. deviations: ||grad F_i - grad f|| (K,). lows, highs: Hessian extremes (K,), NaN if not."""

    loss: float
    squared_gradient: float
    dissimilarity: float
    deviations: NDArray[np.float64]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]


def estimate_constants(
    folder: RunFolder,
    given: Mapping[str, float] | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> EstimatedConstants:
    """The theorem's constants at a few points of the run in `folder`; `given` ones (see GIVEN) stand as they are.

    on_progress: called with the done fraction. Needs the run's data; the same folder gives the same numbers.
    """
    with code_of(folder.path):
        return _estimate(folder, dict(given or {}), on_progress)


def _estimate(
    folder: RunFolder, given: dict[str, float], on_progress: Callable[[float], None] | None
) -> EstimatedConstants:
    unknown = set(given) - set(GIVEN)
    if unknown:
        raise ConfigError(f"no constant '{min(unknown)}' in the convergence bound: expected one of {', '.join(GIVEN)}")
    config, checkpoint, rows = folder.config(), _checkpoint(folder), _metrics(folder)
    longest = max(_step_norm(folder, row) for row in rows)
    parts = _reassembled(folder, config, checkpoint)
    hessians = not {"lipschitz", "strong_convexity"} <= set(given)
    places = _places(config, parts.start, checkpoint.model, longest, hessians=hessians)
    with Workforce(config.local.threads or cores()) as workforce:
        look = _Look(parts, config.seed, workforce, _Progress(places, len(parts.clients), on_progress))
        views = {place.name: look.at(number, place) for number, place in enumerate(places)}
    seen = list(views.values())
    lowest = min((float(view.lows.min()) for view in seen if not np.isnan(view.lows).any()), default=math.nan)
    highest = max((float(view.highs.max()) for view in seen if not np.isnan(view.highs).any()), default=math.nan)
    kappa = np.max([view.deviations for view in seen], axis=0)
    return EstimatedConstants(
        lipschitz=given.get("lipschitz", max(abs(lowest), abs(highest))),
        dissimilarity=given.get("dissimilarity", max(view.dissimilarity for view in seen)),
        strong_convexity=given.get("strong_convexity", parts.algorithm.proximal_mu + lowest),
        step_bound=given.get("step_bound", longest),
        gradient_bound=given.get("gradient_bound", math.sqrt(max(view.squared_gradient for view in seen))),
        heterogeneity=np.full_like(kappa, given["heterogeneity"]) if "heterogeneity" in given else kappa,
        start_gap=views["start"].loss - given.get(OPTIMUM, 0.0),
        given=frozenset(given),
        squared_gradients={name: views[name].squared_gradient for name in ("start", "checkpoint")},
        points=len(places),
        hessian_points=sum(place.hessian for place in places),
        smallest_eigenvalue=lowest,
    )


def bound_of_run(folder: RunFolder, constants: Constants, form: Form = Form.PAPER) -> Bound:
    """Theorem 5 for the run in `folder`, from the folder alone: what was sent and heard, mu, lambda_m, d, tau and M.

    FedProx has C2 = C3 = 0: see HOLDS for what that is worth.
    """
    bound = convergence_bound(constants, record_of_run(folder), form)
    if folder.config().local.mode is LocalMode.RECORD:
        return replace(bound, void="local.mode = 'record': clients take one step and do not minimise g_i")
    return bound


def record_of_run(folder: RunFolder) -> UplinkRecord:
    """What the finished uplinks of a run were, from the ledger's mechanisms as accounted for.

    On radios these are measured: gains at their upper and noise at its lower confidence limit, as privacy needs them.
    With power.backoff = 'actual' the ledger may not know s_i: the mean gain of the senders then stands for each.
    """
    config, rows = folder.config(), _metrics(folder)
    checkpoint = _checkpoint(folder)
    contents = read_ledger(folder.ledger_path)
    mechanisms = _mechanisms(folder, contents, checkpoint)
    weights = contents.header.sizes_array / contents.header.sizes_array.sum()
    gains = np.array([mechanism.received_gains for mechanism in mechanisms])
    if config.power.backoff is Backoff.ACTUAL and config.uplink.kind is not UplinkKind.IDEAL:
        senders = gains > 0
        received = np.array([_number(folder, row, "weight_received") for row in rows])
        gains = senders * (received / (senders @ weights))[:, None]
    # The server's factor on what it divided by alpha_u; `literal` leaves tau out.
    literal = config.power.aggregate is Rescale.LITERAL and config.uplink.kind is not UplinkKind.IDEAL
    clip_norms = np.array([mechanism.clip_norm for mechanism in mechanisms])
    scales = np.ones(len(mechanisms)) if literal else clip_norms
    per_unit = scales / np.array([mechanism.alpha_u for mechanism in mechanisms])
    with code_of(folder.path):
        algorithm = make_algorithm(config)
    mu = algorithm.proximal_mu
    return UplinkRecord(
        proximal_mu=mu,
        dimension=checkpoint.model.size,
        weights=weights,
        reuse=np.array(
            [
                mu / (mu + algorithm.lambda_at(mechanism.uplink)) if isinstance(algorithm, UpcycledFL) else 0.0
                for mechanism in mechanisms
            ]
        ),
        gains=gains * (scales / clip_norms)[:, None],
        jammer_std=per_unit * np.array([mechanism.alpha_cj * mechanism.jammer_gain for mechanism in mechanisms]),
        noise_std=per_unit * np.array([mechanism.noise_std_real for mechanism in mechanisms]),
    )


def premises_not_met(folder: RunFolder) -> tuple[str, ...]:
    """What the theorem takes for granted and the run does not do, one sentence each."""
    config, rows = folder.config(), _metrics(folder)
    record = record_of_run(folder)
    said = []
    if config.local.mode is LocalMode.SGD:
        said.append(
            f"epochs of SGD ({config.local.epochs}) approach the minimum of g_i, where the theorem's clients are"
        )
    clipped = int(sum(_number(folder, row, "clipped") for row in rows))
    if clipped:
        said.append(
            f"{clipped} of {np.count_nonzero(record.gains)} updates were clipped to tau, which the theorem does not "
            "know: what that loses is missing in C4"
        )
    if not config.model.module:
        said.append("the gradient of a ReLU network jumps: an L that holds everywhere does not exist")
    if config.power.backoff is Backoff.ACTUAL:
        said.append("power.backoff = 'actual': no s_i is on record, C4 has the mean received weight for each client")
    if config.uplink.kind is UplinkKind.RADIO:
        said.append("C4 to C6 have measured gains at their upper and measured noise at its lower confidence limit")
    if record.uplinks < config.last_uplink:
        said.append(f"the run has made {record.uplinks} of {config.last_uplink} uplinks: the bound is for those")
    return tuple(said)


def _checkpoint(folder: RunFolder) -> Checkpoint:
    checkpoint = folder.load_checkpoint()
    if checkpoint is None or checkpoint.uplink < 1:
        # A folder that is not a run's says so itself.
        folder.config()
        raise RunFolderError(
            f"{folder.path} has no finished uplink, of which a bound could be: go on with `airdp run ... --resume`"
        )
    return checkpoint


def _metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """One line for each uplink that the checkpoint has seen."""
    last = _checkpoint(folder).uplink
    rows = [row for row in folder.metrics() if row["uplink"] <= last]
    if [row["uplink"] for row in rows] != list(range(1, last + 1)):
        raise RunFolderError(
            f"{folder.metrics_path} is damaged: expected one line for each of the {last} uplinks that the checkpoint "
            "has seen; restore it or run again"
        )
    return rows


def _number(folder: RunFolder, row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise RunFolderError(f"{folder.metrics_path} has no finite number for '{name}' of uplink {row['uplink']}")
    return float(value)


def _step_norm(folder: RunFolder, row: Mapping[str, Any]) -> float:
    """||w^{2m-1} - w^{2m-2}||; folders of versions that did not write it have the norms of its two parts."""
    if "step_norm" in row:
        return _number(folder, row, "step_norm")
    return _number(folder, row, "signal_norm") + _number(folder, row, "noise_norm")


def _mechanisms(folder: RunFolder, contents: LedgerContents, checkpoint: Checkpoint) -> list[RoundMechanism]:
    """One for each finished uplink: of one that was sent more than once, the last, which made the model."""
    if checkpoint.ledger_head not in contents.hashes:
        raise RunFolderError(f"{folder.ledger_path} lacks rows that the checkpoint has seen: it was cut or replaced")
    sent = {mechanism.uplink: mechanism for mechanism in contents.mechanisms}
    missing = [uplink for uplink in range(1, checkpoint.uplink + 1) if uplink not in sent]
    if missing:
        raise RunFolderError(f"{folder.ledger_path} does not know uplink {missing[0]}: it belongs to another run")
    return [sent[uplink] for uplink in range(1, checkpoint.uplink + 1)]


def _reassembled(folder: RunFolder, config: RunConfig, checkpoint: Checkpoint) -> Parts:
    parts = assemble(config)
    partition = folder.read_json("partition.json")
    if not isinstance(partition, dict) or partition.get("data_sha256") != parts.dataset.fingerprint():
        raise RunFolderError(
            f"{folder.path} was run on other data than is here now: its constants cannot be estimated; "
            "give the same data (data.path, AIRDP_DATA)"
        )
    if partition.get("sizes") != parts.sizes.tolist():
        raise RunFolderError(f"{folder.path} was run with other clients: the code that divides the data has changed")
    if checkpoint.model.shape != parts.start.shape:
        raise RunFolderError(
            f"{folder.checkpoint_path} has a model of shape {checkpoint.model.shape}, the config one of "
            f"{parts.start.shape}: the model's code has changed; restore it"
        )
    return parts


def _places(
    config: RunConfig, start: NDArray[np.float32], last: NDArray[np.float32], radius: float, *, hessians: bool
) -> list[_Place]:
    """Both ends of the run, three models between them, and one at a model step's distance from each end."""

    def between(part: float) -> NDArray[np.float32]:
        return (start + np.float32(part) * (last - start)).astype(np.float32)

    def beside(number: int, model: NDArray[np.float32]) -> NDArray[np.float32]:
        away = generator(config.seed, Stream.BOUND, number).standard_normal(model.size)
        return (model + radius / np.linalg.norm(away) * away).astype(np.float32)

    return [
        _Place("start", start, hessians),
        _Place("checkpoint", last, hessians),
        _Place("a quarter", between(0.25), False),
        _Place("half", between(0.5), hessians),
        _Place("three quarters", between(0.75), False),
        _Place("beside the start", beside(0, start), False),
        _Place("beside the checkpoint", beside(1, last), False),
    ]


class _Progress:
    """Fraction of the passes over clients' data that are done."""

    def __init__(self, places: Sequence[_Place], clients: int, say: Callable[[float], None] | None) -> None:
        self._say = say or (lambda fraction: None)
        self._total = clients * sum(2 + HESSIAN_STEPS * place.hessian for place in places)
        self._done = 0

    def add(self, passes: int) -> None:
        self._done += passes
        self._say(self._done / self._total)


@dataclass(frozen=True)
class _Look:
    """Losses, gradients and Hessians of all clients. Memory does not grow with their number."""

    parts: Parts
    seed: int
    workforce: Workforce
    progress: _Progress

    def at(self, number: int, place: _Place) -> _View:
        """The view from one point; `number` tells the random starts of its Hessians from other points'."""
        clients = range(len(self.parts.clients))
        weights = self.parts.sizes / self.parts.sizes.sum()
        loss, whole = 0.0, np.zeros(place.vector.size)
        for weight, (value, gradient) in zip(weights, self._gradients(place, clients), strict=True):
            loss += float(weight) * value
            whole += weight * gradient
            self.progress.add(1)
        squared = float(whole @ whole)
        if not (math.isfinite(loss) and math.isfinite(squared)):
            raise ModelError(f"loss or gradient is not finite at a point of the run ({place.name}): no bound can be")

        def measure(client: int) -> tuple[float, float, float, float]:
            data = self.parts.clients[client]
            _, gradient = loss_and_gradient(self.parts.model, place.vector, data, self.parts.loss)
            low = high = math.nan
            if place.hessian:
                rng = generator(self.seed, Stream.BOUND, 2, number, client)
                low, high = hessian_extremes(self.parts.model, place.vector, data, rng, HESSIAN_STEPS, self.parts.loss)
            return float(gradient @ gradient), float(np.linalg.norm(gradient - whole)), low, high

        measured = []
        for row in self.workforce.in_order(measure, clients):
            measured.append(row)
            self.progress.add(1 + HESSIAN_STEPS * place.hessian)
        norms, deviations, lows, highs = np.array(measured).T
        # Never below 1 but for rounding.
        dissimilarity = max(1.0, math.sqrt(float(weights @ norms) / squared)) if squared > 0 else math.inf
        return _View(loss, squared, dissimilarity, deviations, lows, highs)

    def _gradients(self, place: _Place, clients: Sequence[int]) -> Iterator[tuple[float, NDArray[np.float64]]]:
        return self.workforce.in_order(
            lambda client: loss_and_gradient(
                self.parts.model, place.vector, self.parts.clients[client], self.parts.loss
            ),
            clients,
        )
