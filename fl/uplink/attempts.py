"""The one place where an uplink that failed is tried again."""

from collections.abc import Callable
from typing import TypeVar

from fl.uplink.contract import NotSentError, Uplink, UplinkPlan
from hardware.radio.errors import HardwareError

Outcome = TypeVar("Outcome")


def attempt_uplink(uplink: Uplink, number: int, attempts: int, carry: Callable[[UplinkPlan], Outcome]) -> Outcome:
    """Plan uplink `number` and `carry` it, from a new sounding after each failure of a radio; at most `attempts` times.

    What was authorised in a failed attempt stays charged; that is the business of `carry`. The last failure is raised,
    and where it came before anything was sent it says so.
    """
    sent = False
    for attempt in range(attempts):
        last = attempt + 1 == attempts
        try:
            plan = uplink.plan(number, attempt)
        except NotSentError as error:
            if last:
                nothing = "" if sent else ", nothing was sent"
                raise type(error)(
                    f"uplink {number} was given up after {attempts} soundings{nothing}: {error}"
                ) from error
            continue
        try:
            return carry(plan)
        except HardwareError:
            sent = True
            if last:
                raise
    raise ValueError(f"an uplink takes at least one attempt, not {attempts}")
