"""Who works on the trials of a sweep: processes of this machine (`local`), or a cluster (`cluster`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fl.sweep.worker import Ending, TrialTask

Say = Callable[[Mapping[str, Any]], None]
"""Is told of the start of a trial and of each uplink (`fl.sweep.worker.run_trial`)."""


@dataclass(frozen=True)
class Lost:
    """Who worked on the trial is gone."""


@dataclass(frozen=True)
class Disconnected:
    """Everybody is out of reach."""


Outcome = Ending | Lost | Disconnected
"""What became of a trial that was handed in."""


class Crew(Protocol):
    """Takes trials and brings back what became of them. All calls come from one thread."""

    def begin(self, topic: str, say: Say) -> None:
        """Before the first trial. topic: that tells this sweep from others. say: may be called in another thread."""
        ...

    def hand_in(self, trials: Sequence[TrialTask], *, first: bool = False) -> None:
        """To be worked on in this order. first: before those that wait."""
        ...

    def take_back(self, timeout_s: float) -> list[tuple[TrialTask, Outcome]]:
        """Trials that have come to an end; waits for the first of them, not longer than this."""
        ...
