"""The settings of a radio's chip as the text of attributes: each as a pair of how it is read and how it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hardware.virtual.iiod.attributes import Read, Write, decimal, flag, whole
from hardware.virtual.iiod.chip.transceiver import HIGHEST_RATE_HZ, WIDEST_HZ, Transceiver
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.virtual_lab import VirtualLab

Access = tuple[Read, Write]
_ANY_HZ = (1 << 32) - 1


@dataclass(frozen=True)
class ChipSettings:
    """Of one radio. Names are those of the fields of `Transceiver`."""

    lab: VirtualLab
    radio: VirtualRadio

    @property
    def chip(self) -> Transceiver:
        """What keeps the settings."""
        return self.radio.chip

    def then_tune(self, write: Write) -> Write:
        """`write`, after which the simulated air takes the settings over."""

        def tuned(value: str) -> None:
            write(value)
            self.lab.retune(self.radio)

        return tuned

    def choice(self, name: str) -> Access:
        """One of `transceiver.CHOICES`."""
        return lambda: self.chip.chosen[name], self.then_tune(partial(self.chip.set_choice, name))

    def gain_mode(self) -> Access:
        """Who sets the receive gain; a change begins anew with measuring."""

        def write(value: str) -> None:
            self.chip.set_choice("gain_control_mode", value)
            self.radio.gain_control.restart()

        return lambda: self.chip.gain_mode, self.then_tune(write)

    def settled(self, read: Read) -> Read:
        """`read`, of what depends on the power at the antenna."""

        def looked() -> str:
            self.lab.settle(self.radio)
            return read()

        return looked

    def integer(self, name: str, bounds: tuple[int, int]) -> Access:
        """A whole number, which must be written as such."""
        return self._number(name, lambda value: whole(value, bounds))

    def bandwidth(self, name: str) -> Access:
        """Of an analogue filter, of which decimals may be written; too wide a one is narrowed without a word."""
        return self._number(name, lambda value: min(int(decimal(value, (0, _ANY_HZ))), WIDEST_HZ))

    def _number(self, name: str, parse: Callable[[str], int]) -> Access:
        return (
            lambda: str(getattr(self.chip, name)),
            self.then_tune(lambda value: setattr(self.chip, name, parse(value))),
        )

    def rx_lo(self) -> Access:
        """Carrier of the receiver."""
        return lambda: str(self.chip.rx_lo_hz), self.then_tune(self.chip.set_rx_lo)

    def switch(self, name: str) -> Access:
        """0 or 1."""
        return lambda: str(int(getattr(self.chip, name))), lambda value: setattr(self.chip, name, flag(value))

    def tracking(self, name: str) -> Access:
        """0 or 1: whether the chip tracks an error of its receiver. Nothing in the simulated air depends on it."""
        return (
            lambda: str(int(self.chip.tracking[name])),
            lambda value: self.chip.tracking.update({name: flag(value)}),
        )

    def fir(self, *, rx: bool = False, tx: bool = False) -> Access:
        """0 or 1: the filters of one direction, or of both together."""

        def on() -> bool:
            return (self.chip.rx_fir or not rx) and (self.chip.tx_fir or not tx)

        return lambda: str(int(on())), partial(self.chip.set_fir, rx=rx, tx=tx)

    def rate(self) -> Access:
        """Samples per second of both directions; the gain's control begins anew with measuring."""

        def write(value: str) -> None:
            self.chip.set_rate(value)
            self.radio.gain_control.restart()

        return lambda: str(self.chip.rate_hz), self.then_tune(write)

    def rates(self) -> str:
        """The span of `rate`, which the filters widen."""
        return f"[{self.chip.lowest_rate_hz} 1 {HIGHEST_RATE_HZ}]"
