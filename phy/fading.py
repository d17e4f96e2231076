"""Channel gains of a flat block-fading link: constant within a round, drawn anew for the next."""

import numpy as np
from numpy.typing import NDArray


def rayleigh_gains(count: int, rng: np.random.Generator) -> NDArray[np.complex128]:
    """`count` independent gains h ~ CN(0, 1): E|h|^2 = 1, so |h| is Rayleigh and the phase uniform. Shape (count,)."""
    parts = rng.standard_normal((count, 2)) * np.sqrt(0.5)
    return np.asarray(parts[:, 0] + 1j * parts[:, 1])


def circular_noise(cells: int, noise_var_real: float, rng: np.random.Generator) -> NDArray[np.complex64]:
    """Circular complex Gaussian noise with variance `noise_var_real` on each of I and Q. Shape (cells,)."""
    from phy.compute.gaussian import gaussian

    return gaussian(2 * cells, np.sqrt(noise_var_real), rng).view(np.complex64)
