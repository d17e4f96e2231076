"""Settings of small runs whose targets are numbers, so that their score is R² instead of an accuracy."""

from pathlib import Path
from typing import Any

import numpy as np


def regression_settings(folder: Path) -> dict[str, Any]:
    """Keys by dotted name, over the quickstart; the data is written into `folder`."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 5)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0, 3.0])).astype(np.float32)
    np.savez(folder / "numbers.npz", x=x, y=y)
    return {
        "data.set": "npz",
        "data.path": str(folder / "numbers.npz"),
        "partition.kind": "iid",
        "partition.clients": 3,
        "model.module": "torch.nn:Linear",
        "model.arguments": {"in_features": 5, "out_features": 1},
        "local.loss": "torch.nn.functional:mse_loss",
        "local.epochs": 1,
        "uplink.uplinks": 3,
    }
