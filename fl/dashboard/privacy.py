"""Epsilon by label, recomputed from the ledger as `airdp ledger` does."""

import os
import time
from collections.abc import Callable
from typing import Any

from fl.errors import LedgerError
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.sensitivity import Label
from fl.privacy.statement import state_privacy
from fl.run.folder import RunFolder
from hardware.foundation.documents import open_regular

MOST_BYTES = 64 << 20
MOST_RATIOS = 5_000_000
"""Transmissions times clients, for which losses are held in memory."""
_SHARE = 0.1
"""Of the time that may go into this."""
_SETTLE_S = 3.0


class Privacy:
    """said: JSON-ready, None before the first uplink. version: grows with each.

    A transmission that is on the air has no account yet, and would count without the jammer if its run were cut off
    now. While the ledger grows, the statement of the last accounted one stays; a ledger that stands still is stated as
    it is.
    """

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = folder.ledger_path, clock
        self._seen: tuple[int, int] | None = None
        self._changed = self._wait_until = clock()
        self._open = True
        self.said: dict[str, Any] | None = None
        self.version = 0

    def update(self, *, running: bool) -> None:
        """Read again where the ledger has changed. running: whether its run goes on."""
        now = self._clock()
        size = self._size()
        if size is None or now < self._wait_until:
            return
        if size != self._seen:
            self._seen, self._changed, self._open = size, now, True
        if not self._open:
            return
        patient = running and now - self._changed < _SETTLE_S
        said = self._state(size[1], patient=patient)
        spent = self._clock() - now
        self._wait_until = now + spent / _SHARE
        if said is not None:
            self.said, self._open = said, False
            self.version += 1

    def _size(self) -> tuple[int, int] | None:
        try:
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                return status.st_ino, status.st_size
        except FileNotFoundError:
            return None

    def _state(self, size: int, *, patient: bool) -> dict[str, Any] | None:
        if size > MOST_BYTES:
            return {"error": f"ledger.jsonl has {size} bytes, too many for this page: ask `airdp ledger`"}
        try:
            contents = read_ledger(self._path)
        except LedgerError as error:
            # A row that is just being written looks like one that was cut off.
            return None if patient else {"error": str(error)}
        if contents.authorised * len(contents.header.sizes) > MOST_RATIOS:
            return {"error": "the ledger has too many transmissions and clients for this page: ask `airdp ledger`"}
        if patient and contents.authorised and not contents.proven[-1]:
            return None
        return _statements(contents)


def _statements(contents: LedgerContents) -> dict[str, Any]:
    header = contents.header
    labels = [header.label, *(label for label in Label if label is not header.label)]
    statements = [
        state_privacy(
            contents.mechanisms,
            header.sizes_array,
            label=label,
            neighbours=header.neighbours,
            delta=header.delta,
            unaccounted=contents.unaccounted,
            jammer=header.jammer,
        )
        for label in labels
    ]
    return {
        "authorised": contents.authorised,
        "accounted": contents.accounted,
        "resumes": contents.resumes,
        "claimed": header.label.value,
        "statements": [{**said.to_json(), "conditions": said.conditions} for said in statements],
    }
