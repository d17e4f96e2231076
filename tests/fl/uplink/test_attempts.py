"""The one loop that tries an uplink again: how often, from which attempt, and what it says in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fl.errors import PrivacyError
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import NotSentError
from hardware.radio.errors import HardwareError, LateError


@dataclass
class Scripted:
    """An uplink whose plans fail as they are told to: an error, or None for a plan, which is its own number."""

    outcomes: list[Exception | None]
    asked: list[tuple[int, int]] = field(default_factory=list)
    channel_ages: bool = False

    def plan(self, uplink: int, attempt: int = 0) -> Any:
        self.asked.append((uplink, attempt))
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return attempt

    def exchange(self, plan: Any, updates: Any, authorise: Callable[[], None]) -> Any:
        raise AssertionError("the loop leaves that to its caller")


def test_each_attempt_has_its_own_number() -> None:
    uplink = Scripted([NotSentError("deaf"), NotSentError("deaf"), None])
    assert attempt_uplink(uplink, 7, 3, lambda plan: ("carried", plan)) == ("carried", 2)
    assert uplink.asked == [(7, 0), (7, 1), (7, 2)]


def test_an_uplink_that_was_never_sent_says_so() -> None:
    class QuietError(NotSentError):
        """A kind of its own."""

    uplink = Scripted([NotSentError("first"), QuietError("second")])
    with pytest.raises(QuietError, match=r"^uplink 4 was given up after 2 soundings, nothing was sent: second$"):
        attempt_uplink(uplink, 4, 2, lambda plan: plan)


def test_an_uplink_that_failed_on_the_air_is_tried_again_and_not_called_unsent() -> None:
    def fail(plan: Any) -> Any:
        raise LateError(f"plan {plan} was late")

    with pytest.raises(LateError, match="plan 1 was late"):
        attempt_uplink(Scripted([None, None]), 4, 2, fail)
    with pytest.raises(
        NotSentError,
        match=r"^uplink 4 was given up after 2 soundings, one .* stays charged in the ledger \(.+\): deaf$",
    ):
        attempt_uplink(Scripted([None, NotSentError("deaf")]), 4, 2, fail)


@pytest.mark.parametrize("error", [PrivacyError("a wrong update"), KeyboardInterrupt()])
def test_what_is_no_failure_of_a_radio_is_not_tried_again(error: BaseException) -> None:
    uplink = Scripted([None, None])

    def fail(plan: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        attempt_uplink(uplink, 1, 2, fail)
    assert len(uplink.asked) == 1
    # Nor is a radio that fails while planning with something else than "nothing was sent".
    with pytest.raises(HardwareError, match="broken"):
        attempt_uplink(Scripted([HardwareError("broken"), None]), 1, 2, lambda plan: plan)
