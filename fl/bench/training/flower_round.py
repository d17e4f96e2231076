"""A round of local training in Flower's simulation, and the same here: what a framework costs.

Rounds of both alternate: Flower asks for an evaluation after each of its own, and gets ours for an answer.
"""

import functools
import importlib.util
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fl.bench.measure import Measurement, Seconds
from fl.bench.training.local_round import PAPER_TRAINING, LocalRound
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import epoch_orders
from fl.learning.model import Vector
from fl.learning.workforce import cores
from fl.random_streams import Stream, generator

_WARM_UP = 2


def missing_flower() -> str | None:
    """What to install, None where it is there."""
    if all(importlib.util.find_spec(name) is not None for name in ("flwr", "ray")):
        return None
    return "Flower: pip install 'flwr[simulation]==1.41.0', best in an environment of its own"


@functools.lru_cache(maxsize=1)
def one_epoch() -> LocalRound:
    """50 clients, 10,000 images, one local epoch; made once in each process."""
    return replace(LocalRound.reference_workload(), settings=PAPER_TRAINING.model_copy(update={"epochs": 1}))


def plain_update(client: int, start: Vector) -> Vector:
    """What a client of Flower does: PyTorch's plain loop."""
    work = one_epoch()
    data = work.clients[client]
    orders = epoch_orders(len(data.y), work.settings.epochs, generator(1, Stream.LOCAL, 1, client))
    return AutogradTrainer(work.model).sgd_update(start, data, orders, work.settings, 0.0)


def flower_round(repeats: int) -> Measurement:
    """Pairs of rounds, by the processor's time of all processes: Flower's clients train in others."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    clients, server = ClientApp(), ServerApp()
    pairs: list[tuple[Seconds, Seconds]] = []

    @clients.train()
    def train(message: Message, context: Context) -> Message:
        start = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
        client = int(context.node_config["partition-id"])
        trained = start + plain_update(client, start)
        counted = MetricRecord({"num-examples": len(one_epoch().clients[client].y)})
        return Message(content=RecordDict({"arrays": ArrayRecord([trained]), "metrics": counted}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        work, begun = one_epoch(), [_now()]

        def ours_after(number: int, arrays: ArrayRecord) -> MetricRecord:
            del arrays
            theirs = _since(begun[0])
            started = _now()
            work.ours()
            if number > _WARM_UP:
                pairs.append((_since(started), theirs))
            begun[0] = _now()
            return MetricRecord({"nothing": 0})

        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=50, min_available_nodes=50)
        arrays = ArrayRecord([work.start])
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=repeats + _WARM_UP, evaluate_fn=ours_after)

    resources: dict[str, Any] = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": cores()}}
    run_simulation(server, clients, num_supernodes=50, backend_config=resources)
    walls = [(ours.wall, theirs.wall) for ours, theirs in pairs]
    return Measurement.of(
        [(ours.cpu, theirs.cpu) for ours, theirs in pairs],
        workload="50 clients, 10,000 images, 1 epoch, batch 64, 784-196-10: local training; processor time",
        reference="Flower's simulation (ray) with PyTorch's plain loop: its round, messages and mean included",
        facts={
            "ratio_wall": statistics.median(ours / theirs for ours, theirs in walls),
            "shortest_wall_s": min(ours for ours, _ in walls),
            "shortest_wall_s_flower": min(theirs for _, theirs in walls),
            "cores": cores(),
        },
    )


def _now() -> Seconds:
    """The processor's clock of this process and of all that it has started, by whomever: ray's workers among them."""
    ticks, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name may hold spaces; what comes after it does not.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return Seconds(time.perf_counter(), sum(ticks[process] for process in own) / os.sysconf("SC_CLK_TCK"))


def _since(before: Seconds) -> Seconds:
    return _now().since(before)
