"""What can go wrong with flowgraphs. All derive from `AirdpError`, so the command line reports them in one line."""

from collections.abc import Iterable

from phy.errors import AirdpError


class FlowgraphError(AirdpError):
    """A flowgraph cannot be made, compiled or run as asked."""


class UnknownNameError(FlowgraphError):
    """A flowgraph, a choice or a parameter that does not exist. given, valid: for whoever can suggest the nearest."""

    def __init__(self, what: str, given: str, valid: Iterable[str], of: str = "") -> None:
        self.given, self.valid = given, tuple(valid)
        listed = ", ".join(self.valid) or "none"
        super().__init__(f"unknown {what} '{given}'{f' of {of}' if of else ''}; expected one of: {listed}")
