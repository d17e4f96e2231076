"""The parameters of a flowgraph: what they are called, and which values they take.

Values are checked before a graph is started: GNU Radio's own answer to a wrong one is a traceback.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from flowgraphs.errors import FlowgraphError

Value = str | int | float

CONTROL_ADDRESS, CONTROL_PORT = "control_address", "control_port"

_STREAM = re.compile(r"(samples|monitor)_(in|out)(_\d+)?")
_ADDRESS = re.compile(r"tcp://.+:\d+|ipc://.+")
_TAPS = re.compile(r"taps_\d+")
_POSITIVE = re.compile(r"sample_rate_hz|center_hz|bandwidth_hz")
_NOT_NEGATIVE = re.compile(r"noise_std|noise_var_complex|delay_samples_\d+")


class Kind(StrEnum):
    """What a value is."""

    TEXT = "text"
    INTEGER = "whole number"
    REAL = "number"


@dataclass(frozen=True)
class Parameter:
    """A parameter as it is drawn. default: as text."""

    id: str
    label: str
    kind: Kind
    default: str

    @property
    def option(self) -> str:
        """What the compiled graph calls it on its command line."""
        return f"--{self.id.replace('_', '-')}"

    def parse(self, given: Value) -> Value:
        """The value in this parameter's type. Raises `FlowgraphError` where it has another or is impossible."""
        value = self._typed(given)
        expected = self._violated(value)
        if expected:
            raise self._error(given, expected)
        return value

    def _typed(self, given: Value) -> Value:
        if self.kind is Kind.TEXT:
            return str(given)
        try:
            number = float(given)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (self.kind is Kind.INTEGER and number != int(number)):
            raise self._error(given, f"a {self.kind}")
        return int(number) if self.kind is Kind.INTEGER else number

    def _violated(self, value: Value) -> str:
        """What was expected instead; empty where the value will do."""
        if isinstance(value, str):
            if _STREAM.fullmatch(self.id) and not _ADDRESS.fullmatch(value):
                return "tcp://HOST:PORT or ipc://PATH"
            if _TAPS.fullmatch(self.id) and not _is_taps(value):
                return "complex numbers with commas between, like 1,0.2j"
        elif self.id == CONTROL_PORT and not 1 <= value <= 65535:
            return "a TCP port, 1 to 65535"
        elif _POSITIVE.fullmatch(self.id) and value <= 0:
            return "a number above 0"
        elif _NOT_NEGATIVE.fullmatch(self.id) and value < 0:
            return "0 or more"
        return ""

    def _error(self, given: Value, expected: str) -> FlowgraphError:
        return FlowgraphError(f"{self.id} is '{given}'; expected {expected} ({self.label})")


def _is_taps(text: str) -> bool:
    try:
        taps = [complex(tap) for tap in text.replace(" ", "").split(",")]
    except ValueError:
        return False
    return all(math.isfinite(abs(tap)) for tap in taps)
