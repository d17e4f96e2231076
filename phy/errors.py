"""Root of every error that a user can act on.

It lives in the lowest package so that all layers can derive from it. The command line turns an
`AirdpError` into one line on stderr and exit code 2; anything else is a defect and shows a traceback.
"""


class AirdpError(Exception):
    """Something the user gave cannot be used: the message says what, what was expected, and what to do."""


class SignalError(AirdpError):
    """A waveform, a size or a parameter of the signal processing is impossible."""

    def __init__(self, name: str, value: object, expected: str, advice: str) -> None:
        super().__init__(f"{name} is {value}; expected {expected}. {advice}")
