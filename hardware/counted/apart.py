"""Radios with counts of their own, each in another process: one count for all of them, by what they tell each other.

As `hardware.counted.alignment`, with both sides apart: a transmitter sends a burst and says at which sample of its own
count; the server finds it and says by how much its own count is ahead.
"""

from dataclasses import dataclass

from hardware.counted.alignment import LARGEST_DRIFT_SAMPLES, SHARED_CLOCK_PPM, alignment_limit
from hardware.counted.arrival import ARRIVAL_SAMPLES, alignment_burst, find_burst
from hardware.counted.radio import CountedRadio, Epoch
from hardware.lab.clock import ClockMode
from hardware.lab.one_count import BurstSent, CountStatus, OneCount, ServerCount
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError, HardwareError, RxOverflowError


@dataclass
class DistantServer:
    """The server's count as a transmitter elsewhere knows it: what it was told last."""

    epoch: Epoch
    at_sample: int

    def now(self) -> int:
        """Not known here: nothing is held back for it."""
        return 0


def _counted(radio: Radio) -> CountedRadio:
    if not isinstance(radio, CountedRadio):
        raise HardwareError(f"{radio.name} does not count samples by itself")
    return radio


class CountsApart(OneCount):
    """See `OneCount`."""

    def server_count(self, server: Radio) -> ServerCount:
        """Reach the server's radio again where it was lost; its count as it is."""
        counted = _counted(server)
        counted.recover()
        counted.forget_losses()
        return ServerCount(counted.epoch, counted.now())

    def look(self, clock: ClockMode, radio: Radio, server: ServerCount) -> CountStatus:
        """At the transmitter: is its count the server's?"""
        counted = _counted(radio)
        counted.recover()
        counted.forget_losses()
        held = counted.reference
        if isinstance(held, DistantServer):
            held.epoch, held.at_sample = server.epoch, server.now_sample
        drift = 1e-6 * abs(counted.clock_ppm) * (server.now_sample - counted.aligned_at)
        free = clock is ClockMode.FREE_RUNNING
        astray = not counted.aligned or (free and drift > LARGEST_DRIFT_SAMPLES)
        return CountStatus(astray and not counted.parked, counted.unsent_samples, counted.queue_samples)

    def send(self, radio: Radio) -> BurstSent:
        """At the transmitter: send what is to be found."""
        counted = _counted(radio)
        return BurstSent(counted.send_unaligned(alignment_burst(counted.settings.sample_rate_hz)), counted.epoch)

    def find(
        self, clock: ClockMode, server: Radio, begin_sample: int, sent: BurstSent, queue_samples: int
    ) -> tuple[int, float]:
        """At the server: by how much its count is ahead of the sender's, and the sender's clock in ppm."""
        counted = _counted(server)
        arrival = find_burst(counted, begin_sample, alignment_limit(queue_samples, counted))
        if arrival is None:
            raise CaptureError(
                f"a burst was not heard by '{server.name}' while aligning: is its sender on, in range and tuned to the "
                "same frequency?"
            )
        if clock is ClockMode.SHARED and abs(arrival.clock_ppm) > SHARED_CLOCK_PPM:
            raise HardwareError(
                f"a sender is {arrival.clock_ppm:+.2f} ppm off '{server.name}': they share no clock; connect the "
                "reference, or write clock = 'free-running' in the lab file"
            )
        ppm = 0.0 if clock is ClockMode.SHARED else arrival.clock_ppm
        return round(arrival.start_sample) - ARRIVAL_SAMPLES - sent.start_sample, ppm

    def take(self, radio: Radio, offset_samples: int, sent: BurstSent, server: ServerCount, clock_ppm: float) -> None:
        """At the transmitter: the server's count is `offset_samples` more than its own."""
        counted = _counted(radio)
        if counted.epoch != sent.epoch:
            raise RxOverflowError(f"{radio.name} cannot be aligned: samples were lost meanwhile")
        reference = DistantServer(server.epoch, server.now_sample)
        counted.set_alignment(reference, offset_samples, (sent.epoch, server.epoch), clock_ppm, server.now_sample)

    def wait(self, server: Radio, samples: int) -> None:
        """At the server: let so many samples pass, where time moves only if somebody receives."""
        counted = _counted(server)
        while samples > 0:
            counted.receive(min(samples, counted.queue_samples), counted.now())
            samples -= counted.queue_samples
