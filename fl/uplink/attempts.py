"""The one place where an uplink that failed is tried again."""

from collections.abc import Callable
from typing import TypeVar

from fl.uplink.contract import NotSentError, Uplink, UplinkPlan
from hardware.radio.errors import HardwareError

Outcome = TypeVar("Outcome")


def attempt_uplink(uplink: Uplink, number: int, attempts: int, carry: Callable[[UplinkPlan], Outcome]) -> Outcome:
    """Plan uplink `number` and `carry` it, from a new sounding after each failure of a radio; at most `attempts` times.

    What was authorised in a failed attempt stays charged; that is the business of `carry`. The last failure is raised;
    where it came before anything was sent it says whether an earlier attempt was, and why that one failed.
    """
    failed: HardwareError | None = None
    for attempt in range(attempts):
        last = attempt + 1 == attempts
        try:
            plan = uplink.plan(number, attempt)
        except NotSentError as error:
            if last:
                raise type(error)(
                    f"uplink {number} was given up after {attempts} soundings, {_what_was_sent(failed)}: {error}"
                ) from error
            continue
        try:
            return carry(plan)
        except HardwareError as error:
            failed = error
            if last:
                raise
    raise ValueError(f"an uplink takes at least one attempt, not {attempts}")


def _what_was_sent(failed: HardwareError | None) -> str:
    if failed is None:
        return "nothing was sent"
    return f"one of which ended while sending and stays charged in the ledger ({failed})"
