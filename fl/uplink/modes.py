"""Choices about an uplink that a config makes."""

from enum import StrEnum


class PowerControl(StrEnum):
    """Who chooses alpha_u: the server by a fixed rule, or the offline optimum of a published baseline."""

    ADAPTIVE = "adaptive"
    LIU_SIMEONE = "liu-simeone"


class BaselineBudget(StrEnum):
    """What the baseline may spend: the run's own target, or its epsilon and delta as the baseline counts them."""

    OURS = "ours"
    PUBLISHED = "published"


class Backoff(StrEnum):
    """How a client chooses s_i: for any update within the clip norm (public), or for the update it has (`actual`)."""

    WORST_CASE = "worst-case"
    ACTUAL = "actual"


class Rescale(StrEnum):
    """`rescaled`: the server multiplies by tau/alpha_u; `literal`: by 1/alpha_u, as printed. Epsilon is the same."""

    RESCALED = "rescaled"
    LITERAL = "literal"
