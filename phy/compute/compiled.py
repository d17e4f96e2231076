"""How loops are made machine code (Numba).

They run without the interpreter lock, are compiled at their first call and kept on disk where a folder can be written.

A compiler uses vector registers where it knows that nothing overlaps and no index is negative: a loop's own slices tell
it the first, unsigned places in whole arrays the second. A slice costs some 15 ns, which short loops notice: they take
arrays and places instead. Complex rows are looked at as rows of twice as many floats where that is enough.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """As machine code. Products and sums may be one instruction; the order of a sum is kept."""
    return _compiled(function, {"contract"})


def compiled_sums(function: Function) -> Function:
    """The same for sums whose order does not matter: what they round to depends on the processor."""
    return _compiled(function, {"contract", "reassoc"})


def compiled_exactly(function: Function) -> Function:
    """The same with every operation rounded by itself, for what must have the bits that another program gives it."""
    return _compiled(function, set())


def _compiled(function: Function, fastmath: set[str]) -> Function:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        made: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        made = numba.njit(**options)(function)
    return made
