"""How an open lab is left: clients fall silent and read back silent, and whoever jams only after them.

What clients have queued plays on for a moment after a program has decided to stop, and must not do so without the
noise that it was promised.
"""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

from hardware.lab.model import Lab, Role
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, TxUnderflowError
from hardware.radio.termination import uninterrupted

HOLD_TIMEOUTS = 2
"""Time-outs of the lab for which the jammer waits for clients: one to notice a dead connection, one to open another."""
_LOOK_S = 0.05
_LOG = logging.getLogger("airdp")

_Closing = Future[Exception | None]


class Leaving:
    """The way out of a lab, for `ExitStack.push`; `at_exit` is for programs that never take it.

    jamming: name of the radio that is silenced last: the one that has the role, or whose turn it is.
    """

    def __init__(self, lab: Lab, radios: Mapping[str, Radio]) -> None:
        self._lab, self._radios = lab, radios
        self.jamming: str | None = None if lab.jammer is None else lab.jammer.name

    def __call__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all radios in order. Failures are raised, or told where something else went wrong before.

        That somebody stops the program is nothing that went wrong: a radio that may still send is worth more than that.
        """
        failures: list[Exception] = []
        try:
            with uninterrupted():
                failures += self._close_in_order()
        except (KeyboardInterrupt, SystemExit):
            if not failures:
                raise
        if failures and (error is None or isinstance(error, KeyboardInterrupt | SystemExit)):
            raise HardwareError("; ".join(map(str, failures)))
        for failure in failures:
            _LOG.error("%s", failure)

    def at_exit(self) -> None:
        """The last line of defence. No thread starts at that time, so it is one radio after the other."""
        # Receivers first: where time is simulated, it then goes on, and the streams of transmitters can end.
        first, last = self._parted()
        for radio in sorted(first, key=lambda radio: radio.name != self._lab.ps.name) + last:
            failure = _closed(radio)
            if failure is not None:
                _LOG.error("%s", failure)

    def _parted(self) -> tuple[list[Radio], list[Radio]]:
        """Radios that are open: those that are silenced first, and the one that jams."""
        left = [radio for radio in self._radios.values() if not radio.closed]
        last = [radio for radio in left if radio.name == self.jamming]
        return [radio for radio in left if radio not in last], last

    def _close_in_order(self) -> list[Exception]:
        """All but the jammer at once, so that one that does not answer keeps no other on the air; then the jammer."""
        first, last = self._parted()
        if not first and not last:
            return []
        with ThreadPoolExecutor(len(first) + len(last)) as threads:
            closing = {radio.name: threads.submit(_closed, radio) for radio in first}
            for jammer in last:
                self._hold(jammer, closing)
                closing[jammer.name] = threads.submit(_closed, jammer)
        results = [future.result() for future in closing.values()]
        return [failure for failure in results if failure is not None]

    def _hold(self, jammer: Radio, closing: Mapping[str, _Closing]) -> None:
        """Keep the jammer on the air until clients have said that they are silent, or for as long as can be waited."""
        clients = {
            radio.name: closing[radio.name]
            for radio in self._lab.radios
            if radio.role is Role.CLIENT and radio.name in closing
        }
        if jammer.parked:
            return
        most_s = HOLD_TIMEOUTS * self._lab.timeout_s
        started_s = time.monotonic()
        wait(clients.values(), most_s)
        unproven = _unproven(clients)
        if not unproven:
            return
        names = ", ".join(f"'{name}'" for name in unproven)
        _LOG.warning(
            "%s %s not read back silent: '%s' stays on the air for up to %.3g s",
            names,
            "has" if len(unproven) == 1 else "have",
            jammer.name,
            max(0.0, started_s + most_s - time.monotonic()),
        )
        while time.monotonic() < started_s + most_s and _answers(jammer) and _unproven(clients):
            time.sleep(_LOOK_S)
        _LOG.error("what %s may still send from here on has no noise of '%s' in it", names, jammer.name)


def _closed(radio: Radio) -> Exception | None:
    """None where it was parked, read back so, and given back; else why not."""
    try:
        radio.close()
    except Exception as error:  # whatever it is, others must be silenced too
        return error
    return None


def _unproven(clients: Mapping[str, _Closing]) -> list[str]:
    return [name for name, future in clients.items() if not future.done() or future.result() is not None]


def _answers(jammer: Radio) -> bool:
    """Whether a jammer can still be heard, as far as it can be told."""
    try:
        jammer.check()
    except TxUnderflowError:
        return True
    except HardwareError:
        return False
    return True
