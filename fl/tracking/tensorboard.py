"""TensorBoard: event files in RUN/tensorboard, for `tensorboard --logdir RUN`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fl.tracking.missing import missing
from fl.tracking.tracker import Tracked

if TYPE_CHECKING:
    pass

FOLDER = "tensorboard"


class TensorBoard:
    """A tracker. Scalars by uplink, and the settings as text."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("tensorboard", "tensorboard", error) from error
        self._make = SummaryWriter
        self._writer: SummaryWriter | None = None

    def start(self, run: Tracked) -> None:
        """See `Tracker`. A run that goes on adds a file; TensorBoard shows the last value of an uplink."""
        self._writer = self._make(str(run.folder / FOLDER))
        lines = [f"    {key} = {value!r}" for key, value in sorted(run.settings.items())]
        self._writer.add_text("config", "\n".join(lines))

    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        """See `Tracker`."""
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, number)
            self._writer.flush()

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        """See `Tracker`."""
        if self._writer is not None:
            self._writer.add_text("status", status)
            self._writer.close()
