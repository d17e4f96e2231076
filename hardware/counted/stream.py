"""A stream of samples that is counted as it passes: a port that moves blocks, and the thread that keeps it moving.

The count is that of the air, up to a constant, for as long as nothing is lost. Where something is, the port says so.
"""

import threading
import time
from abc import ABC, abstractmethod

from hardware.radio.errors import HardwareError

_JOIN_S = 0.5
_CANCELLED_JOIN_S = 5.0


class Port(ABC):
    """One direction of a radio, as far as it only moves blocks of samples.

    lockstep: whether time stands still while nobody receives. warm_up_blocks: until the queues are full for the first
    time; what is lost until then nobody has counted on. interrupted: a call that waits may return without a result.
    """

    def __init__(self, name: str, block_samples: int, *, lockstep: bool, warm_up_blocks: int) -> None:
        self.name, self.block_samples = name, block_samples
        self.lockstep, self.warm_up_blocks = lockstep, warm_up_blocks
        self.interrupted = threading.Event()

    @property
    def patient(self) -> bool:
        """Whether moving a block may take as long as it likes, and only `cancel` ends it."""
        return False

    @property
    def usable(self) -> bool:
        """Whether the other side can be asked anything."""
        return True

    @abstractmethod
    def watch(self) -> str:
        """How samples were lost before the block that was moved last; nothing where none were. Once warm only."""

    def poll(self) -> str:
        """The same, as far as any thread can tell at any moment."""
        return ""

    def explained(self, error: OSError, waited_s: float) -> HardwareError:
        """What a failed call of the system's means."""
        del waited_s
        return HardwareError(f"{self.name}: its stream broke: {error.strerror or error}")

    @abstractmethod
    def cancel(self) -> None:
        """End a call that waits. Nothing is moved any more."""

    @abstractmethod
    def release(self, *, abandoned: bool) -> None:
        """Give everything back. abandoned: a call has not returned, in spite of `cancel`."""


class SampleStream(ABC):
    """A running stream. first_sample: where its count begins, so that a restarted stream never counts backwards.

    losses: grows whenever samples were lost; what somebody knew about the count before does not hold after.
    """

    def __init__(self, port: Port, first_sample: int) -> None:
        self.name, self.block, self.losses = port.name, port.block_samples, 0
        self._any_port = port
        self._count = first_sample
        self._moved_blocks = 0
        self._lost_how = ""
        self._failure: HardwareError | None = None
        self._stopping = threading.Event()
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"{port.name} {type(self).__name__}", daemon=True)

    @abstractmethod
    def now(self) -> int:
        """The first sample that is not settled yet."""

    @abstractmethod
    def _move(self) -> None:
        """Pass one block through the port; called by the stream's thread alone."""

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself."""
        return self._failure is not None

    def start(self) -> None:
        """Let it run."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                started_s = time.monotonic()
                try:
                    self._move()
                except OSError as error:
                    if not self._stopping.is_set():
                        raise self._any_port.explained(error, time.monotonic() - started_s) from error
                if self._stopping.is_set():
                    return
                self._moved_blocks += 1
                self._look_for_losses()
        except HardwareError as error:
            if not self._stopping.is_set():
                self._failure = error
        except BaseException as error:
            self._failure = HardwareError(f"{self.name}: its stream ended: {error!r}")
            raise
        finally:
            with self._changed:
                self._changed.notify_all()

    def _look_for_losses(self) -> None:
        if self._moved_blocks >= self._any_port.warm_up_blocks:
            self._lose(self._any_port.watch())

    def poll(self) -> None:
        """Look for losses now; any thread may."""
        self._lose(self._any_port.poll())

    def forget_losses(self) -> None:
        """Do not report what was lost until now; `losses` stays."""
        with self._changed:
            self._lost_how = ""

    def _lose(self, how: str) -> None:
        if how:
            with self._changed:
                self.losses += 1
                self._lost_how = how
                self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure

    def stop(self) -> None:
        """End the thread and release the port, whatever state they are in. A second call does nothing."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._stopped:
            return
        self._any_port.interrupted.set()
        started = self._thread.ident is not None
        if started:
            self._thread.join(_JOIN_S)
        if self._any_port.patient or self._thread.is_alive() or self.failed or not self._any_port.usable:
            # Ends a call that waits, and lets the port go without asking the other side, which may not answer.
            self._any_port.cancel()
            if started:
                self._thread.join(_CANCELLED_JOIN_S)
        self._any_port.release(abandoned=self._thread.is_alive())
        self._stopped = True
