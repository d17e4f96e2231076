"""Experiments: configuration, the run and its folder, figures, benchmarks and the command line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl.run.apart.attendance import NodesElsewhere
    from fl.run.config import RunConfig
    from fl.run.runner import RunResult, UplinkMetrics


def run(
    config: "RunConfig | Mapping[str, Any] | str | Path",
    out: Path | str | None = None,
    *,
    resume: bool = False,
    on_uplink: "Callable[[UplinkMetrics], None] | None" = None,
    elsewhere: "NodesElsewhere | None" = None,
) -> "RunResult":
    """Run an experiment: `config` is a `RunConfig`, a mapping with its sections, or a shipped name or TOML path.

    Returns when the run has finished or its privacy budget is spent; the folder `result.out` holds everything.
    `on_uplink` is called after each uplink. `elsewhere`: clients and jammer are processes of their own. Raises
    `phy.errors.AirdpError` for anything the caller can mend.
    """
    # Imported here: PyTorch takes seconds to load, and the accounting commands do not need it.
    from fl.run.config import RunConfig, load_config, parse_config
    from fl.run.runner import run_experiment

    if isinstance(config, str | Path):
        resolved = load_config(str(config))
    else:
        resolved = config if isinstance(config, RunConfig) else parse_config(config)
    return run_experiment(
        resolved, None if out is None else Path(out), resume=resume, on_uplink=on_uplink, elsewhere=elsewhere
    )
