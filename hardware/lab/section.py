"""Sections of a lab file that belong to backends."""

from collections.abc import Sequence

from hardware.foundation.sections import Section


class BackendSection(Section):
    """A section that a backend brings. Other backends ignore it, but a mistake in it is refused all the same.

    Every key has a default: a lab file need not have the section.
    """

    def check_radios(self, names: Sequence[str]) -> None:
        """Raise `HardwareError` where the section speaks of radios that are not among the lab's."""
