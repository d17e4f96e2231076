"""What is where in what a receiver received: silence, soundings, payload."""

from dataclasses import dataclass, field
from typing import Any

from fl.nodes.air_format import AirFormat
from fl.nodes.messages import Heard, HearSoundings, MeasureSilence, Message, Receive, Silence
from fl.nodes.stage import Beginning
from hardware.recording.model import Mark
from phy.numerology import Numerology


@dataclass
class Marker:
    """A watcher (`fl.nodes.journal.watch`). transmitters: names, in the order of their slots. center_hz: of the band.

    marks: of the attempt that began last, in the server's count.
    """

    air: AirFormat
    transmitters: tuple[str, ...]
    center_hz: float
    marks: list[Mark] = field(default_factory=list)

    def ended(self) -> None:
        """What was noted stays until another attempt has begun."""

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """Forget the attempt before."""
        del uplink, attempt, beginning
        self.marks = []

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """Nothing is marked."""

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """See `Watcher.answered`."""
        offsets = [state.offset_samples for state in answer.states] if isinstance(answer, Heard) else []
        own = answer.start_sample if isinstance(answer, Silence) else None
        self._mark(message, offsets, own)

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """What was listened to is marked, whatever came of it."""
        self._mark(message, [], None)

    def _mark(self, message: Message[Any], offsets: list[int], own_silence: int | None) -> None:
        match message:
            case MeasureSilence(start_sample):
                own = start_sample if own_silence is None else own_silence
                count = own + self.air.quiet_samples - start_sample
                self.marks.append(Mark(start_sample, count, "silence", "nobody sends"))
            case HearSoundings(first_slot, slots, start_sample):
                for place, name in enumerate(self.transmitters[first_slot : first_slot + slots]):
                    late = offsets[place] if offsets else 0
                    start = start_sample + place * self.air.slot_samples + late
                    comment = f"'{name}' alone, in slot {first_slot + place}"
                    self.marks.append(
                        Mark(
                            start,
                            self.air.sounding.length,
                            f"sounding {name}",
                            comment,
                            self._edges_hz(self.air.sounding.numerology),
                        )
                    )
            case Receive(start_sample, _):
                self._mark_payload(start_sample)

    def _mark_payload(self, start_sample: int) -> None:
        frame = self.air.payload
        guards = frame.leading_quiet_slice, frame.trailing_quiet_slice
        margins = slice(guards[0].stop, frame.payload_slice.start), slice(frame.payload_slice.stop, guards[1].start)
        edges_hz = self._edges_hz(frame.numerology)
        for place, label, comment, edges in (
            *((guard, "guard", "nobody sends", None) for guard in guards),
            *((margin, "margin", "a jammer where there is one, and tails of filters", None) for margin in margins),
            (frame.payload_slice, "payload", "all senders at once", edges_hz),
        ):
            self.marks.append(Mark(start_sample + place.start, place.stop - place.start, label, comment, edges))

    def _edges_hz(self, numerology: Numerology) -> tuple[float, float]:
        """Outer edges of the lowest and the highest used subcarrier."""
        half, used = 0.5 / numerology.fft_size, numerology.used_frequencies
        low, high = (used.min() - half) * numerology.sample_rate_hz, (used.max() + half) * numerology.sample_rate_hz
        return float(self.center_hz + low), float(self.center_hz + high)
