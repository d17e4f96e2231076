"""Experiments: configuration, the run and its folder, figures, benchmarks and the command line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl.cluster.access import Access
    from fl.run.apart.attendance import NodesElsewhere
    from fl.run.config import RunConfig
    from fl.run.course.metrics import UplinkMetrics
    from fl.run.course.result import RunResult


def run(
    config: "RunConfig | Mapping[str, Any] | str | Path",
    out: Path | str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    on_uplink: "Callable[[UplinkMetrics], None] | None" = None,
    elsewhere: "NodesElsewhere | None" = None,
    access: "Access | None" = None,
) -> "RunResult":
    """Run an experiment: `config` is a `RunConfig`, a mapping with its sections, or a shipped name or TOML path.

    Returns when the run has finished or its privacy budget is spent; the folder `result.out` holds everything, and
    `result` the model, its history and what was spent. `overrides` are keys by dotted name, for example
    `{"local.epochs": 5}`. `on_uplink` is called after each uplink. It may be called as often as one likes: without
    `out` each call makes a folder of its own; with the same `out`, `resume=True` returns what is there.
    `elsewhere`: clients and jammer are processes of their own. `access`: to the cluster of `local.workers`. Raises
    `phy.errors.AirdpError` for anything the caller can mend.
    """
    # Imported here: PyTorch takes seconds to load, and the accounting commands do not need it.
    from fl.run.config import resolve_config
    from fl.run.runner import run_experiment

    resolved = resolve_config(config, overrides)
    return run_experiment(
        resolved,
        None if out is None else Path(out),
        resume=resume,
        on_uplink=on_uplink,
        elsewhere=elsewhere,
        access=access,
    )
