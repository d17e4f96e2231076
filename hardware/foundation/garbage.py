"""Pauses that the collection of garbage makes."""

import gc


def keep_what_is_loaded() -> None:
    """Let no later collection look at what there is now: for a process that has loaded all that it needs.

    A full one takes a tenth of a second after a start, and longer on a busy machine. libuhd waits no longer than that
    for a box to say that it is there.
    """
    gc.collect()
    gc.freeze()
