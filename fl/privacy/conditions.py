"""Against whom a claim holds, and what must be true besides: the adversary's view, and who is trusted with what."""

from enum import StrEnum


class View(StrEnum):
    """What the adversary has of an uplink. `samples` is the stronger claim: whoever has samples can compute cells."""

    SAMPLES = "samples"
    CELLS = "cells"

    def covers(self, claimed: "View") -> bool:
        """Whether a mechanism that holds for this view holds for the claimed one."""
        return self is View.SAMPLES or claimed is View.CELLS


class JammerTrust(StrEnum):
    """Who the jammer is. `unknown` where a ledger does not say."""

    NONE = "none"
    DEDICATED = "dedicated"
    EXTERNAL = "external"
    ROTATING = "rotating"
    UNKNOWN = "unknown"


VIEW_MEANING = {
    View.SAMPLES: "samples: against whoever has every sample that the server's radio delivered",
    View.CELLS: "cells: against whoever has the demodulated sum, and not the samples that it was made of",
}
SERVER_HONEST = (
    "server: trusted to be honest about its receiver's noise and about the channels that it has measured, and to have "
    "no better receiver and no second one; not trusted otherwise"
)
AIR_KEEPS = (
    "air: channels are taken to stay as they were sounded until the payload has ended, and the receiver's noise to be "
    "smooth within a subcarrier"
)
_FRESH = "to send fresh noise that nobody can predict, and to tell it to nobody"
JAMMER_MEANING = {
    JammerTrust.NONE: "jammer: none takes part",
    JammerTrust.DEDICATED: f"jammer: a node of its own, trusted by all clients {_FRESH}",
    JammerTrust.EXTERNAL: f"jammer: a node of somebody else, trusted by all clients {_FRESH}",
    JammerTrust.ROTATING: f"jammer: each client in turn, trusted by all others {_FRESH}; against the one whose turn it "
    "is only the receiver's noise protects",
    JammerTrust.UNKNOWN: f"jammer: not recorded who it is; whoever it is, it is trusted {_FRESH}",
}


def rests_on(view: View, jammer: JammerTrust, *, noise_known: bool = True) -> tuple[str, ...]:
    """What a claim rests on, in sentences. noise_known: whether the server has said anything about its noise."""
    air = (AIR_KEEPS,) if view is View.SAMPLES else ()
    server = (SERVER_HONEST,) if noise_known else ()
    return (VIEW_MEANING[view], *air, *server, JAMMER_MEANING[jammer])
