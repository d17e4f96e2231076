"""What can be done to a simulated lab besides using its radios."""

from typing import Protocol


class SimulatedAir(Protocol):
    """The air between radios, simulated here or in another process."""

    def new_block(self, block: int) -> None:
        """Begin fading block `block`."""
        ...


class VirtualTime(Protocol):
    """Time that is a counter, and moves only when somebody moves it."""

    def advance(self, sample: int) -> None:
        """Move it to `sample` of the server's count, as if everybody had waited for that. Never moves it back."""
        ...
