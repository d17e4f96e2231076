"""The transmit stream of a box: bursts that leave at their ticks, and the proof that each did.

A thread hands samples over, because a box that is full takes no more until a burst has begun. Another one takes the
messages that the box sends back: an acknowledgement for a burst that went out whole, or what was wrong with it. A burst
that comes late is not sent at all (underflow_policy=next_burst): the default would cut off its head and send the rest.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardware.radio.errors import (
    HardwareError,
    LateError,
    RadioTimeoutError,
    TxLateError,
    TxLostPacketError,
    TxUnderflowError,
)
from hardware.usrp.converters import Words
from hardware.usrp.device import UsrpDevice
from hardware.usrp.ticks import Ticks

_SLICE_S = 0.1
_JOIN_S = 5.0
# By how much an acknowledgement may be ahead of the last sample: what lies between a box's queue and its antenna.
_EARLY_S = 1e-3


@dataclass
class _Burst:
    """offered: whether packets of it may be on their way. begun: set when the box has taken what it can of it. handed:
    samples that it has taken."""

    start: int
    words: Words
    offered: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    handed: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.words)


class BurstStream:
    """Sample numbers are those of the box's clock. lockstep: time stands still while nobody receives."""

    def __init__(self, device: UsrpDevice, ticks: Ticks, timeout_s: float, *, lockstep: bool) -> None:
        self.name, self._device, self._ticks = device.name, device, ticks
        self._timeout_s, self._lockstep = timeout_s, lockstep
        uhd = device.uhd
        arguments = uhd.usrp.StreamArgs("sc16", "sc16")
        arguments.args = "underflow_policy=next_burst"
        self._streamer: Any = device.ask("opening a transmit stream", lambda usrp: usrp.get_tx_stream(arguments))
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._queue: deque[_Burst] = deque()
        self._unsettled: list[_Burst] = []
        self._errors: list[HardwareError] = []
        self._busy_until = 0
        self._threads = [
            threading.Thread(target=run, name=f"{self.name} {what}", daemon=True)
            for what, run in (("bursts", self._hand_over), ("messages", self._listen))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def busy_until(self) -> int:
        """The first sample after all bursts."""
        return self._busy_until

    def place(self, words: Words, start: int) -> None:
        """Let words leave from sample `start` on; returns when the box has them, or as many as it takes for now."""
        burst = _Burst(start, words)
        with self._changed:
            if start < self._busy_until:
                raise LateError(f"{self.name} cannot send at sample {start}: it is busy until {self._busy_until}")
            self._busy_until = burst.end
            self._queue.append(burst)
            self._unsettled.append(burst)
            self._changed.notify_all()
        burst.begun.wait(self._timeout_s)

    def raise_damage(self) -> None:
        """Raise what was wrong with a burst, once."""
        with self._changed:
            if self._errors:
                error = self._errors.pop(0)
                raise error

    def settle(self, now: int) -> None:
        """Wait for the fate of all bursts that are over at sample `now`; raise where one did not go out whole."""
        deadline_s = time.monotonic() + self._timeout_s
        with self._changed:
            while not self._errors and any(burst.end <= now for burst in self._unsettled):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._device.usable:
                    silent = [burst for burst in self._unsettled if burst.end <= now]
                    self._unsettled = [burst for burst in self._unsettled if burst.end > now]
                    why = f": {self._device.failure}" if self._device.failure else ""
                    # As with captures: what does not answer as it should is opened anew.
                    self._device.fail(f"it has not confirmed a burst for {self._timeout_s:g} s")
                    raise RadioTimeoutError(
                        f"{self.name} has not confirmed within {self._timeout_s:g} s that the burst at sample "
                        f"{silent[0].start} went out{why}"
                    )
                self._changed.wait(min(left_s, _SLICE_S))
        self.raise_damage()

    def forget_damage(self) -> None:
        """Let nobody hear of what was wrong until now."""
        with self._changed:
            self._errors.clear()

    def unsent(self, now: int) -> int:
        """Bursts that are not over at sample `now`."""
        with self._changed:
            return sum(burst.end > now for burst in self._unsettled)

    def stop(self) -> None:
        """End both threads; what is in the box stays there until the next stream is opened, which empties it."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._streamer = None

    def _hand_over(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._stopping.is_set():
                    self._changed.wait()
                if self._stopping.is_set():
                    return
                burst = self._queue.popleft()
                # Before its first packet leaves: the message about it may be here before `send` has returned.
                burst.offered = True
            try:
                self._send(burst)
            except RuntimeError as error:
                self._fail(burst, self._device.explained("sending", error, 0.0))
            finally:
                burst.begun.set()

    def _send(self, burst: _Burst) -> None:
        metadata = self._device.uhd.types.TXMetadata()
        metadata.start_of_burst, metadata.end_of_burst, metadata.has_time_spec = True, True, True
        moved_s = time.monotonic()
        while burst.handed < len(burst.words):
            metadata.time_spec = self._ticks.time_of(burst.start + burst.handed)
            count = self._streamer.send(burst.words[burst.handed :], metadata, _SLICE_S)
            if count:
                metadata.start_of_burst = False
                burst.handed += count
                moved_s = time.monotonic()
                continue
            # The box is full, which is no reason for anybody to wait who has other bursts to place.
            burst.begun.set()
            if self._stopping.is_set():
                metadata.has_time_spec = False
                self._streamer.send(np.zeros(0, np.int32), metadata, 0.0)
                return
            if not self._lockstep and time.monotonic() - moved_s > 2 * self._timeout_s:
                self._device.fail(f"it took no samples for {2 * self._timeout_s:g} s")
                self._fail(burst, RadioTimeoutError(f"{self.name}: {self._device.failure}"))
                return

    def _fail(self, burst: _Burst, error: HardwareError) -> None:
        with self._changed:
            if burst in self._unsettled:
                self._unsettled.remove(burst)
            self._errors.append(error)
            self._changed.notify_all()

    def _listen(self) -> None:
        metadata = self._device.uhd.types.TXAsyncMetadata()
        while not self._stopping.is_set():
            try:
                came = self._streamer.recv_async_msg(metadata, _SLICE_S)
            except RuntimeError as error:
                # Whose burst that was nobody knows: none is confirmed any more.
                self._give_up(self._device.explained("listening to its messages", error, _SLICE_S))
                return
            if came:
                at = self._ticks.sample_at(metadata.time_spec) if metadata.has_time_spec else None
                self._settle(str(metadata.event_code).rpartition(".")[2], at)

    def _give_up(self, error: HardwareError) -> None:
        self._device.fail(str(error))
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def _settle(self, event: str, at: int | None) -> None:
        """One message. at: the box's sample when it was sent."""
        with self._changed:
            # None where it was given up, or where this is the second message about the same one.
            for burst in self._ended_by(at) if event == "burst_ack" else self._hit_by(event, at):
                self._unsettled.remove(burst)
                error = _error(self.name, event, burst.start)
                if error is not None:
                    self._errors.append(error)
            self._changed.notify_all()

    def _hit_by(self, event: str, at: int | None) -> list[_Burst]:
        """The burst that was under way; of lost packets nobody knows to which of those in the box they belonged."""
        if event.startswith("seq_error"):
            return [one for one in self._unsettled if one.offered]
        return [one for one in self._unsettled if at is None or one.start <= at][:1]

    def _ended_by(self, at: int | None) -> list[_Burst]:
        """The burst that ended then: of another that ended before, and of which nothing came, it says nothing."""
        if at is None:
            return self._unsettled[:1]
        early = round(_EARLY_S * self._ticks.tick_rate_hz / self._ticks.per_sample)
        over = [one for one in self._unsettled if one.end <= at + early]
        return sorted(over, key=lambda one: abs(one.end - at))[:1]


def _error(name: str, event: str, start: int) -> HardwareError | None:
    """What a message says about the burst at sample `start`."""
    burst = f"the burst at sample {start}"
    if event == "burst_ack":
        return None
    if event == "time_error":
        return TxLateError(f"{name}: {burst} came late and was not sent; raise usrp.lead_s")
    if event in {"seq_error", "seq_error_in_packet"}:
        return TxLostPacketError(f"{name}: packets of {burst} were lost on the way: what it sent is damaged")
    if event in {"underflow", "underflow_in_packet"}:
        return TxUnderflowError(f"{name}: the samples of {burst} came too slowly: what it sent is damaged")
    return TxUnderflowError(f"{name}: {burst} ended with '{event}': what it sent is damaged")
