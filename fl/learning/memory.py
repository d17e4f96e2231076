"""Memory that stays with the process between the steps of training.

An allocator gives arrays of megabytes back to the system as soon as they are free, and every step of a convolutional
network makes its activations anew: that the system clears their pages each time takes a third of the time.
"""

import ctypes
import functools

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Arrays below this come from kept memory: the most that glibc takes. So much of it may be free.
_LARGEST_KEPT, _MOST_FREE = 1 << 25, 1 << 28


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process use freed memory again in place of giving it back; whether its allocator can. Done once."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Not glibc's: another C library, or another system.
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(mallopt(_TRIM_THRESHOLD, _MOST_FREE))
