"""The trials of a sweep on a Dask cluster (`fl.cluster`). A worker runs one trial at a time.

Besides what `fl.cluster.connection` asks for, the machines share the folder of the sweep.
"""

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from fl.sweep.crew import Disconnected, Lost, Outcome, Say
from fl.sweep.worker import Ending, TrialTask, run_trial

if TYPE_CHECKING:
    from distributed import Client, Future

_LOOK_S = 0.02


class DaskCrew:
    """See `fl.sweep.crew.Crew`. The workers of a cluster."""

    def __init__(self, client: "Client") -> None:
        self.client, self._topic, self._handed_in = client, "", 0
        self._going: dict[Future[Ending], TrialTask] = {}

    def begin(self, topic: str, say: Say) -> None:
        """See `Crew.begin`."""
        self._topic = topic
        self.client.subscribe_topic(topic, lambda event: say(event[1]))

    def hand_in(self, trials: Sequence[TrialTask], *, first: bool = False) -> None:
        """See `Crew.hand_in`. All in one call: Dask then keeps what no worker is free for, in the order of the keys."""
        made = self.client.map(
            _run_on_worker,
            trials,
            topic=self._topic,
            key=[f"{self._topic}-{self._handed_in + index:09d}" for index in range(len(trials))],
            pure=False,
            priority=int(first),
        )
        self._handed_in += len(trials)
        self._going.update(zip(made, trials, strict=True))

    def take_back(self, timeout_s: float) -> list[tuple[TrialTask, Outcome]]:
        """See `Crew.take_back`."""
        deadline_s = time.monotonic() + timeout_s
        while not any(future.done() for future in self._going) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        ended = [future for future in self._going if future.done()]
        return [(self._going.pop(future), _outcome(future)) for future in ended]


def _run_on_worker(trial: TrialTask, topic: str) -> Ending:
    from distributed import get_worker

    worker = get_worker()
    return run_trial(trial, lambda event: worker.log_event(topic, event))


def _outcome(future: "Future[Ending]") -> Outcome:
    from distributed import KilledWorker

    if future.status == "error" and isinstance(future.exception(), KilledWorker):
        # So many workers died in it that Dask gives it up.
        return Lost()
    try:
        ending: Ending = future.result()
        return ending
    except CancelledError:
        return Disconnected()
