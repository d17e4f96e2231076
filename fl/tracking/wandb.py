"""Weights & Biases, offline: a run in RUN/wandb that nobody else sees until `wandb sync` sends it."""

from collections.abc import Mapping
from typing import Any

from fl.tracking.missing import missing
from fl.tracking.tracker import Tracked


class WandbOffline:
    """A tracker. Nothing is sent over the network."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb", "wandb", error) from error
        self._wandb: Any = wandb
        self._run: Any = None

    def start(self, run: Tracked) -> None:
        """See `Tracker`. A run that goes on is another offline run in the same group."""
        self._run = self._wandb.init(
            mode="offline",
            project="airdp",
            name=run.name,
            group=run.folder.resolve().name,
            dir=str(run.folder.resolve()),
            config=dict(run.settings),
            settings=self._wandb.Settings(silent=True, disable_git=True, save_code=False),
        )

    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._run.log(dict(metrics), step=number)

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._run.summary.update({"status": status, **result})
        self._run.finish(exit_code=1 if status == "failed" else 0)
