"""Linear algebra whose last bits do not depend on how many cores there are, or on who asked first.

What is kept for a whole process (`lru_cache`) is used by everybody in it, whatever number of threads BLAS had when it
was computed; with another number its sums are taken in another order.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """NumPy's and SciPy's BLAS with one thread, as before afterwards."""
    with ThreadpoolController().select(user_api="blas").limit(limits=1):
        yield
