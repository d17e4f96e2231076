"""Training many clients on a few cores: one thread per core, each with single-threaded linear algebra.

Threads rather than processes: the time is spent inside compiled code, which lets go of the interpreter lock, and
threads share the data, need no pickling, no import guard in the user's script, and leave no orphans when a run is
killed. Two such threads are faster than one that uses two cores inside each small product. `airdp bench` measures it.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self, TypeVar

import torch
from threadpoolctl import ThreadpoolController

from fl.learning.memory import keep_freed_memory

Result = TypeVar("Result")

_AHEAD = 3
"""Items begun per worker before the first is taken: clients differ in size, and the small need not wait for a large."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """PyTorch with one thread per call, as before afterwards. Results then do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workforce:
    """Threads that train clients, kept for a whole run.

    Kept, because an interrupt that comes while the main thread joins others makes Python 3.11 take them for ended, and
    the process aborts when it exits with one of them inside PyTorch (python/cpython issue 90882).

    Meanwhile NumPy's and SciPy's BLAS has one thread too: workers would otherwise wait for each other inside it, and a
    norm would depend, in its last bit, on the number of cores.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Threads start when there is work for them."""
        keep_freed_memory()
        self._blas = ThreadpoolController().select(user_api="blas").limit(limits=1)
        if self._workers > 1:
            self._pool = ThreadPoolExecutor(
                self._workers, thread_name_prefix="client", initializer=torch.set_num_threads, initargs=(1,)
            )
        return self

    def __exit__(self, *reason: object) -> None:
        """What is being worked on is finished, the rest is dropped."""
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._blas.restore_original_limits()

    def in_order(self, work: Callable[[int], Result], items: Sequence[int]) -> Generator[Result, None, None]:
        """Results of `work(item)` in the order of `items`.

        At most `_AHEAD` results per worker wait at any time, so memory does not grow with the number of items.
        """
        with single_threaded_torch():
            if self._pool is None or len(items) < 2:
                yield from map(work, items)
                return
            waiting: deque[Future[Result]] = deque()
            try:
                for item in items:
                    waiting.append(self._pool.submit(work, item))
                    if len(waiting) >= _AHEAD * self._workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def in_order(work: Callable[[int], Result], items: Sequence[int], workers: int) -> Iterator[Result]:
    """`Workforce.in_order` with threads of its own."""
    with Workforce(workers) as workforce:
        yield from workforce.in_order(work, items)
