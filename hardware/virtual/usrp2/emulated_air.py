"""The air of an emulator, as its clients reach it."""

from dataclasses import dataclass

from hardware.virtual.usrp2.side_channel import ask


@dataclass(frozen=True)
class EmulatedAir:
    """It is reached through one of its boxes. uri: of that."""

    uri: str

    def new_block(self, block: int) -> None:
        """Begin fading block `block` on all links."""
        ask(self.uri, block=block)
