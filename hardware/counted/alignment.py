"""A lab of radios that count by themselves is given one count of samples."""

import time
from collections.abc import Mapping, Sequence

from hardware.counted.arrival import (
    ARRIVAL_SAMPLES,
    FOUND_WITHIN_SAMPLES,
    SEARCH_SAMPLES,
    Arrival,
    alignment_burst,
    find_burst,
)
from hardware.counted.radio import CountedRadio
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab, LabRadio, Role
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError, HardwareError, LabFileError, RxOverflowError

LARGEST_DRIFT_SAMPLES = 32
"""By which free-running clocks may have drifted apart before they are aligned again."""
SHARED_CLOCK_PPM = 0.1
"""Radios that differ by more do not share a clock, whatever the lab file says."""
_ATTEMPTS = 2
# What a host, a bus and a network may add to the queues.
_LATENCY_S = 0.25


def require_one_direction(lab: Lab, radio: LabRadio) -> None:
    """Raise `LabFileError` for a radio that is to send and to receive."""
    if radio.receives and radio.role not in (Role.PS, Role.OBSERVER):
        raise LabFileError(
            f"{lab.source}: '{radio.name}' has receives = true: here the ps and observers alone receive, because two "
            "streams of one radio do not share a count"
        )


def align(lab: Lab, radios: Mapping[str, Radio]) -> tuple[str, ...]:
    """Reach radios again that were lost, and align the others that are not parked and do not count as the server.

    Bursts that were placed before leave first, where anything is aligned. Returns the names of the aligned ones.
    """
    counted = [radio for radio in radios.values() if isinstance(radio, CountedRadio)]
    server = next(radio for radio in counted if radio.receives and not radio.observes)
    for radio in (server, *counted):
        radio.recover()
        radio.forget_losses()
    shared = lab.clock_mode is ClockMode.SHARED
    others = [radio for radio in counted if radio is not server and not radio.parked]
    stray = [radio for radio in others if _astray(radio, server, shared)]
    if not stray:
        return ()
    _let_leave(counted, server)
    transmitters = [radio for radio in others if radio.transmits]
    for radio in stray:
        if radio.transmits:
            _align_one(radio, server, shared)
    for radio in stray:
        if radio.observes:
            _align_observer(radio, transmitters, server, shared)
    return tuple(radio.name for radio in stray)


def _let_leave(radios: Sequence[CountedRadio], server: CountedRadio) -> None:
    """Wait until no burst is on its way. None is called back: what clients have sent is still under a jammer's noise.

    A stream that stands still is given up after the time-out; that it does so shows elsewhere.
    """
    rate_hz = server.settings.sample_rate_hz
    for radio in radios:
        left = radio.unsent_samples
        deadline_s = time.monotonic() + left / rate_hz + radio.timeout_s
        while left and time.monotonic() < deadline_s:
            if radio.lockstep:
                # Time moves only where somebody receives.
                server.receive(min(left, server.queue_samples), server.now())
            else:
                time.sleep(left / rate_hz)
            left = radio.unsent_samples


def _astray(radio: CountedRadio, server: CountedRadio, shared: bool) -> bool:
    if not radio.aligned:
        return True
    drift = 1e-6 * abs(radio.clock_ppm) * (server.now() - radio.aligned_at)
    return not shared and drift > LARGEST_DRIFT_SAMPLES


def alignment_limit(queue_samples: int, server: CountedRadio) -> int:
    """Samples within which the server hears a burst of a transmitter with such a queue."""
    latency = 0 if server.lockstep else round(_LATENCY_S * server.settings.sample_rate_hz)
    # Twice, because a fresh stream takes its first burst only once its queue was full.
    return 2 * (queue_samples + server.queue_samples) + latency


def _align_one(radio: CountedRadio, server: CountedRadio, shared: bool) -> None:
    burst = alignment_burst(server.settings.sample_rate_hz)
    sent: list[int] = []
    for _ in range(_ATTEMPTS):
        limit = alignment_limit(radio.queue_samples, server)
        epochs = (radio.epoch, server.epoch)
        begin = server.now()
        sent.append(radio.send_unaligned(burst))
        arrival = find_burst(server, begin, limit)
        if arrival is None:
            continue
        heard = _which(sent, arrival, server)
        if (radio.epoch, server.epoch) != epochs:
            raise RxOverflowError(f"{radio.name} and {server.name} cannot be aligned: samples were lost meanwhile")
        if shared and abs(arrival.clock_ppm) > SHARED_CLOCK_PPM:
            raise HardwareError(
                f"'{radio.name}' is {arrival.clock_ppm:+.2f} ppm off '{server.name}': they share no clock; connect the "
                "reference, or write clock = 'free-running' in the lab file"
            )
        offset = round(arrival.start_sample) - ARRIVAL_SAMPLES - heard
        radio.set_alignment(server, offset, epochs, 0.0 if shared else arrival.clock_ppm)
        return
    raise CaptureError(
        f"'{radio.name}' was not heard by '{server.name}' while aligning: is it on, in range and tuned to the same "
        "frequency?"
    )


def _which(sent: Sequence[int], arrival: Arrival, server: CountedRadio) -> int:
    """Which of the bursts that were sent has arrived: one that was given up may come after all, the next behind it."""
    if len(sent) == 1:
        return sent[0]
    apart = sent[-1] - sent[-2]
    begin = round(arrival.start_sample) + FOUND_WITHIN_SAMPLES
    following = find_burst(server, begin, apart - FOUND_WITHIN_SAMPLES + ARRIVAL_SAMPLES)
    late = following is not None and abs(following.start_sample - arrival.start_sample - apart) < ARRIVAL_SAMPLES
    return sent[-2] if late else sent[-1]


def _align_observer(
    observer: CountedRadio, transmitters: Sequence[CountedRadio], server: CountedRadio, shared: bool
) -> None:
    """From one burst that both hear. That the way to one is longer than to the other stays in the observer's count."""
    burst = alignment_burst(server.settings.sample_rate_hz)
    observer.forget_alignment()
    for transmitter in transmitters:
        epochs = (observer.epoch, server.epoch)
        begin, own_begin = server.now(), observer.now()
        limit = alignment_limit(transmitter.queue_samples, server)
        transmitter.send_unaligned(burst)
        arrival = find_burst(server, begin, limit)
        if arrival is None:
            continue
        if server.lockstep:
            # Time moves only where the server receives, and the observer looks at whole pieces.
            server.receive(SEARCH_SAMPLES, server.now())
        heard = find_burst(observer, own_begin, limit)
        if heard is None:
            continue
        if (observer.epoch, server.epoch) != epochs:
            raise RxOverflowError(f"{observer.name} and {server.name} cannot be aligned: samples were lost meanwhile")
        clock_ppm = 0.0 if shared else arrival.clock_ppm - heard.clock_ppm
        observer.set_alignment(server, round(arrival.start_sample - heard.start_sample), epochs, clock_ppm)
        return
    raise CaptureError(
        f"'{observer.name}' and '{server.name}' have heard no transmitter together while aligning: is it on, in range "
        "and tuned to the same frequency?"
    )
