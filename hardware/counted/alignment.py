"""A lab of radios that count by themselves: closed together, given one count of samples."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from hardware.alignment import ARRIVAL_SAMPLES, alignment_burst, find_burst
from hardware.counted_radio import CountedRadio
from hardware.errors import CaptureError, HardwareError, LabFileError, RxOverflowError
from hardware.lab import Lab, LabRadio, OpenLab, Role
from hardware.medium import ClockMode
from hardware.radio import Radio

LARGEST_DRIFT_SAMPLES = 32
"""By which free-running clocks may have drifted apart before they are aligned again."""
SHARED_CLOCK_PPM = 0.1
"""Radios that differ by more do not share a clock, whatever the lab file says."""
_ATTEMPTS = 2
# What a host, a bus and a network may add to the queues.
_LATENCY_S = 0.25
_LOG = logging.getLogger("airdp")


def require_one_direction(lab: Lab, radio: LabRadio) -> None:
    """Raise `LabFileError` for a radio that is to send and to receive."""
    if radio.receives and radio.role is not Role.PS:
        raise LabFileError(
            f"{lab.source}: '{radio.name}' has receives = true: here the ps alone receives, because a radio's two "
            "streams do not share a count"
        )


def close_together(
    radios: Mapping[str, Radio],
) -> Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]:
    """For `ExitStack.push`: closes all at once, so that one that does not answer keeps no other on the air.

    Failures are raised, or told where something else went wrong before.
    """

    def close(radio: Radio) -> HardwareError | None:
        try:
            radio.close()
        except HardwareError as error:
            return error
        return None

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left = [radio for radio in radios.values() if not radio.closed]
        if not left:
            return
        with ThreadPoolExecutor(len(left)) as threads:
            failures = [failure for failure in threads.map(close, left) if failure is not None]
        if failures and error is None:
            raise HardwareError("; ".join(map(str, failures)))
        for failure in failures:
            _LOG.error("%s", failure)

    return leave


def align(lab: OpenLab) -> tuple[str, ...]:
    """Reach radios again that were lost, and align the transmitters that are not parked and do not count as the server.

    Bursts that were to be sent are withdrawn where anything is aligned. Returns the names of the aligned ones.
    """
    counted = [radio for radio in lab.radios.values() if isinstance(radio, CountedRadio)]
    server = next(radio for radio in counted if radio.receives)
    for radio in (server, *counted):
        radio.recover()
        radio.forget_losses()
    shared = lab.lab.clock_mode is ClockMode.SHARED
    stray = [radio for radio in counted if radio.transmits and not radio.parked and _astray(radio, server, shared)]
    if not stray:
        return ()
    for radio in counted:
        radio.withdraw()
    for radio in stray:
        _align_one(radio, server, shared)
    return tuple(radio.name for radio in stray)


def _astray(radio: CountedRadio, server: CountedRadio, shared: bool) -> bool:
    if not radio.aligned:
        return True
    drift = 1e-6 * abs(radio.clock_ppm) * (server.now() - radio.aligned_at)
    return not shared and drift > LARGEST_DRIFT_SAMPLES


def _align_one(radio: CountedRadio, server: CountedRadio, shared: bool) -> None:
    burst = alignment_burst(server.settings.sample_rate_hz)
    latency = 0 if radio.lockstep else round(_LATENCY_S * server.settings.sample_rate_hz)
    # Twice, because a fresh stream takes its first burst only once its queue was full.
    limit = 2 * (radio.queue_samples + server.queue_samples) + latency
    for _ in range(_ATTEMPTS):
        epochs = (radio.epoch, server.epoch)
        begin = server.now()
        sent = radio.send_unaligned(burst)
        arrival = find_burst(server, begin, limit)
        if arrival is None:
            continue
        if (radio.epoch, server.epoch) != epochs:
            raise RxOverflowError(f"{radio.name} and {server.name} cannot be aligned: samples were lost meanwhile")
        if shared and abs(arrival.clock_ppm) > SHARED_CLOCK_PPM:
            raise HardwareError(
                f"'{radio.name}' is {arrival.clock_ppm:+.2f} ppm off '{server.name}': they share no clock; connect the "
                "reference, or write clock = 'free-running' in the lab file"
            )
        offset = round(arrival.start_sample) - ARRIVAL_SAMPLES - sent
        radio.set_alignment(server, offset, epochs, 0.0 if shared else arrival.clock_ppm)
        return
    raise CaptureError(
        f"'{radio.name}' was not heard by '{server.name}' while aligning: is it on, in range and tuned to the same "
        "frequency?"
    )
