"""Learning, power control, privacy, experiments and the command line.

Symbols follow the paper: K clients, client i holds n_i of n samples and weighs p_i = n_i/n; an update has d coordinates
and norm at most tau; alpha_u, alpha_i and alpha_CJ are the amplitudes of server, client and jammer; s_i >= 1 is a
client's back-off; sigma is the standard deviation of the noise per real coordinate after division by alpha_u.

What scripts and notebooks use: `run` (in `fl.run`), `open_uplink`, `read_ledger`, `flatten`, `unflatten_into`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl.learning.model import flatten, unflatten_into
    from fl.loop.own_uplink import open_uplink
    from fl.privacy.ledger import Ledger, read_ledger

__all__ = ["Ledger", "flatten", "open_uplink", "read_ledger", "unflatten_into"]

_HOMES = {
    "Ledger": "fl.privacy.ledger",
    "flatten": "fl.learning.model",
    "open_uplink": "fl.loop.own_uplink",
    "read_ledger": "fl.privacy.ledger",
    "unflatten_into": "fl.learning.model",
}
"""Imported when they are asked for: PyTorch takes seconds to load, and the command line need not wait for it."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fl' has no attribute '{name}'")
