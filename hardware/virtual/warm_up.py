"""What the simulated air loads and compiles at its first use, done before anybody waits for an answer.

On a busy machine it takes seconds. libuhd gives a box a tenth of a second to say that it is there and one second to
answer, libiio waits for two and a half, and the thread that answers may be the one that lets time pass.
"""

import numpy as np

from hardware.air.build import build_medium
from hardware.lab.model import Lab
from hardware.virtual.shared_time import LONGEST_STEP, latency_samples


def warm_up(lab: Lab, seed: int) -> None:
    """Let a client send and the server listen, in an air of their own that is then forgotten."""
    medium = build_medium(lab, seed, latency_samples=latency_samples(lab, seed))
    for radio in (lab.ps, lab.clients[0]):
        medium.tune(radio.name, radio.settings)
    medium.send(lab.clients[0].name, np.full(LONGEST_STEP, 0.1, np.complex64), 0)
    medium.listen(lab.ps.name, LONGEST_STEP, 0)
