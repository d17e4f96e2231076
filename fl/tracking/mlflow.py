"""MLflow: a run in the store that MLFLOW_TRACKING_URI names, else in RUN/mlflow.db or, without SQLAlchemy, RUN/mlruns.

Where that is a server, what goes out leaves this machine, and each uplink waits for its answer.
"""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.tracking.missing import missing
from fl.tracking.tracker import Tracked

if TYPE_CHECKING:
    pass

EXPERIMENT = "airdp"
_FOLDER_TAG = "airdp.folder"
_MOST_PARAM = 500
"""Characters of a value; what is longer is cut."""
_AT_ONCE = 100
"""Params in one request, MLflow's own limit."""


class Mlflow:
    """A tracker. Metrics by uplink, settings as params; a run that goes on continues its MLflow run."""

    def __init__(self) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise missing("mlflow", "mlflow", error) from error
        self._make: type[MlflowClient] = MlflowClient
        self._client: Any = None
        self._run_id = ""

    def start(self, run: Tracked) -> None:
        """See `Tracker`."""
        from mlflow.entities import Param

        folder = str(run.folder.resolve())
        self._client = self._make(tracking_uri=store(run.folder))
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        number = self._client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
        held = self._client.search_runs([number], f"tags.`{_FOLDER_TAG}` = '{folder}'", max_results=1)
        if held:
            self._run_id = held[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        made = self._client.create_run(number, run_name=run.name, tags={_FOLDER_TAG: folder})
        self._run_id = made.info.run_id
        params = [Param(key, str(value)[:_MOST_PARAM]) for key, value in sorted(run.settings.items()) if str(value)]
        for place in range(0, len(params), _AT_ONCE):
            self._client.log_batch(self._run_id, params=params[place : place + _AT_ONCE])

    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._log(metrics, number)

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._client.set_tag(self._run_id, "airdp.status", status)
        self._client.set_terminated(self._run_id, "FAILED" if status == "failed" else "FINISHED")

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        import time

        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run_id, [Metric(name, value, now, step) for name, value in metrics.items()])


def store(folder: Path) -> str:
    """Address of the store."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if given:
        return given
    if importlib.util.find_spec("sqlalchemy") is not None:
        return f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    # MLflow wants to be told that files are meant: it prefers databases.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return (folder.resolve() / "mlruns").as_uri()
