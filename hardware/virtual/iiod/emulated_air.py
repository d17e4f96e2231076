"""The air of an emulator, as its clients reach it."""

from dataclasses import dataclass

from hardware.pluto.radio import PlutoRadio


@dataclass(frozen=True)
class EmulatedAir:
    """It is reached through one of its radios."""

    radio: PlutoRadio

    def new_block(self, block: int) -> None:
        """Begin fading block `block` on all links. It is the first thing that is done after something broke."""
        self.radio.recover()
        self.radio.context.write_debug("airdp_block", str(block))
