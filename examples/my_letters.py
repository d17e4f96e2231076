"""What is one's own in `own_parts.py`: a data set of 26 letters, a model and a server's algorithm."""

from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

from fl.learning.server.algorithms import ServerState


def letters(per_letter: int, seed: int):
    """26 letters, drawn by matplotlib, turned and moved a little, with noise: ((x, y), (x_test, y_test)), x uint8."""
    rng = np.random.default_rng(seed)
    samples = [(_draw(chr(ord("a") + number), rng), number) for number in range(26) for _ in range(per_letter)]
    x, y = np.stack([image for image, _ in samples]), np.array([label for _, label in samples])
    test = np.arange(len(y)) % 4 == 0
    return (x[~test], y[~test]), (x[test], y[test])


def _draw(letter: str, rng: np.random.Generator):
    figure = Figure(figsize=(0.2, 0.2), dpi=100)
    canvas = FigureCanvasAgg(figure)
    x, y = rng.uniform(0.44, 0.56, 2)
    figure.text(x, y, letter, ha="center", va="center", fontsize=rng.uniform(10, 12), rotation=rng.uniform(-10, 10))
    canvas.draw()
    ink = 255.0 - np.asarray(canvas.buffer_rgba())[..., 0]
    return np.clip(ink + rng.normal(0.0, 20.0, ink.shape), 0, 255).astype(np.uint8)


class Net(nn.Sequential):
    """A small convolutional network. GroupNorm in place of batch normalisation, whose buffers could not travel."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, classes),
        )


@dataclass(frozen=True)
class FedAdam:
    """Adam at the server, with the sum for a gradient. What a server does with sums costs no privacy."""

    lr: float
    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def step(self, state: ServerState, aggregate, uplink: int) -> ServerState:
        """One step; the moments are kept in the state, so that a run can be resumed."""
        m = 0.9 * state.memory.get("m", np.zeros_like(aggregate)) + 0.1 * aggregate
        v = 0.99 * state.memory.get("v", np.zeros_like(aggregate)) + 0.01 * aggregate**2
        scaled = (m / (1 - 0.9**uplink)) / (np.sqrt(v / (1 - 0.99**uplink)) + 1e-3)
        return ServerState((state.model + self.lr * scaled).astype(np.float32), {"m": m, "v": v})
