"""How long an uplink's local training must take at least, were it done the plain way: its FLOPs, and sgemm's rate.

Plain SGD of the features-hidden-classes MLP multiplies, for every sample of every epoch, twice through the first layer
(forward, and for its weights' gradient; the gradient with respect to the images is not needed) and three times through
the second. A multiplication with addition counts two FLOPs; everything else is left out.
"""

import statistics
import time
from collections.abc import Callable

import torch

from fl.errors import ModelError
from fl.learning.model import MLP
from fl.learning.settings import LocalMode, LocalSettings
from fl.learning.workforce import single_threaded_torch
from fl.run.assemble import Parts
from fl.run.folder import RunFolder

_SIDE = 1024
_REPEATS = 5


def plain_flops(*, samples: int, epochs: int, features: int, hidden: int, classes: int) -> float:
    """FLOPs of all matrix products; 125 GFLOP for 10,000 samples, 20 epochs and 784-196-10."""
    return float(samples) * epochs * (4 * features * hidden + 6 * hidden * classes)


def _epochs(local: LocalSettings) -> int:
    """The mode `record` takes one step over all samples."""
    return local.epochs if local.mode is LocalMode.SGD else 1


def flops_per_uplink(parts: Parts) -> float:
    """`plain_flops` of one uplink in which all clients train; raises `ModelError` where the model is not the MLP."""
    if type(parts.model) is not MLP:
        raise ModelError("FLOPs are known for the built-in MLP only: leave model.module out")
    return plain_flops(
        samples=int(parts.sizes.sum()),
        epochs=_epochs(parts.local.settings),
        features=parts.model.first.in_features,
        hidden=parts.model.first.out_features,
        classes=parts.model.second.out_features,
    )


def flops_per_uplink_of(folder: RunFolder) -> float:
    """`flops_per_uplink` of a run that has made an uplink, from its folder alone: no data is loaded."""
    config, partition, checkpoint = folder.config(), folder.read_json("partition.json"), folder.load_checkpoint()
    if config.model.module or checkpoint is None or "outputs" not in partition:
        raise ModelError(f"{folder.path}: FLOPs are known for the built-in MLP only, after the first uplink")
    hidden, classes = config.model.hidden, int(partition["outputs"])
    return plain_flops(
        samples=sum(partition["sizes"]),
        epochs=_epochs(config.local),
        features=(checkpoint.model.size - classes) // hidden - classes - 1,
        hidden=hidden,
        classes=classes,
    )


def multiply(flops: float) -> None:
    """Spend `flops` on products with a large square float32 matrix, on one core."""
    matrix, rows = torch.ones(_SIDE, _SIDE), round(flops / (2 * _SIDE**2))
    out = torch.empty(_SIDE, _SIDE)
    with single_threaded_torch(), torch.inference_mode():
        for begin in range(0, rows, _SIDE):
            height = min(_SIDE, rows - begin)
            torch.mm(matrix[:height], matrix, out=out[:height])


def sgemm_flops_per_second(clock: Callable[[], float] = time.perf_counter) -> float:
    """What one core does in large products: the median of a few bursts, about a second in all.

    clock: `time.thread_time` counts only the time in which the core is this thread's, for machines that others use.
    """
    burst = 8 * 2.0 * _SIDE**3
    multiply(burst)
    rates = []
    for _ in range(_REPEATS):
        started = clock()
        multiply(burst)
        rates.append(burst / (clock() - started))
    return statistics.median(rates)
