"""Updates that wait for their uplink: in the air node's memory only, one of each client in a round, given out once."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError

Values = NDArray[np.float32]


@dataclass
class Mailbox:
    """clients: K, numbered from 0. coordinates: d, known once the first round begins."""

    clients: int
    coordinates: int = 0
    _round: int = 0
    _open: bool = False
    _sizes: dict[int, int] = field(default_factory=dict)
    _updates: dict[int, Values] = field(default_factory=dict)

    def begin(self, number: int, coordinates: int) -> None:
        """From now on updates of round `number` are taken; those of an earlier one that were not sent are forgotten."""
        if number <= self._round:
            raise PrivacyError(f"round {number} begins after round {self._round}: expected a later one")
        if coordinates < 1 or self.coordinates not in (0, coordinates):
            raise PrivacyError(f"updates of {coordinates} coordinates, of {self.coordinates} before")
        self.coordinates, self._round, self._open = coordinates, number, True
        self._updates.clear()

    def put(self, number: int, client: int, examples: int, values: Values) -> None:
        """Client's update of round `number`. examples: n_i, which weighs it; as in every round before."""
        if number != self._round or not self._open:
            now = f"round {self._round} is being collected" if self._open else "no round is being collected"
            raise PrivacyError(f"client {client}'s update is of round {number}, and {now}: it is not taken")
        if not 0 <= client < self.clients:
            raise PrivacyError(f"client {client} of {self.clients}: expected a number from 0 to {self.clients - 1}")
        if client in self._updates:
            raise PrivacyError(f"client {client} has handed in its update of round {number}: a second one is not taken")
        if examples < 1 or self._sizes.setdefault(client, examples) != examples:
            raise PrivacyError(
                f"client {client} has {examples} examples, {self._sizes.get(client)} before: expected the same number, "
                "above 0, in every round"
            )
        if values.shape != (self.coordinates,) or not np.isfinite(values).all():
            raise PrivacyError(
                f"client {client}'s update has shape {values.shape}, or numbers that are not finite: expected "
                f"({self.coordinates},)"
            )
        self._updates[client] = values

    def take(self, number: int) -> tuple[list[int], list[Values]]:
        """Sizes n_i and updates of all clients, by their numbers. They are here no longer."""
        if number != self._round or not self._open:
            raise PrivacyError(f"round {number} is not being collected")
        missing = [client for client in range(self.clients) if client not in self._updates]
        if missing:
            raise PrivacyError(f"clients {missing} have not handed in updates of round {number}: nothing is sent")
        self._open = False
        order = range(self.clients)
        taken = [self._updates.pop(client) for client in order]
        return [self._sizes[client] for client in order], taken
