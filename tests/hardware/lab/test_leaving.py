"""In which order radios fall silent, whatever ends a program, and how long a jammer waits for clients that do not."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hardware.lab.file import parse_lab
from hardware.lab.leaving import HOLD_TIMEOUTS
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab
from hardware.loopback.radio import LoopbackRadio
from hardware.radio.errors import HardwareError, RadioTimeoutError
from tests.conftest import REPOSITORY

TIMEOUT_S = 0.2
HOLD_S = HOLD_TIMEOUTS * TIMEOUT_S
CLIENTS = ["client-1", "client-2", "client-3"]


def lab_of(*, jammer_first: bool = False) -> Lab:
    jammer = {"name": "jammer", "role": "jammer"}
    others = [{"name": "client", "role": "client", "count": 3}, {"name": "ps", "role": "ps"}]
    return parse_lab(
        {
            "lab": {
                "name": "test",
                "backend": "loopback",
                "sample_rate_hz": 5e6,
                "center_hz": 2.45e9,
                "tx_gain_db": 0.0,
                "rx_gain_db": 0.0,
                "timeout_s": TIMEOUT_S,
            },
            "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
            "radio": [jammer, *others] if jammer_first else [*others, jammer],
        }
    )


class Diary:
    """What the radios of a lab did while it was left, in order: (radio, what, seconds since the first)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: list[tuple[str, str, float]] = []
        self.slow_s: dict[str, float] = {}
        self.failing: dict[str, HardwareError] = {}
        self._lock = threading.Lock()
        silence, read_back = LoopbackRadio._silence, LoopbackRadio._read_back

        def silenced(radio: LoopbackRadio) -> None:
            time.sleep(self.slow_s.get(radio.name, 0.0))
            if radio.name in self.failing:
                self._note(radio.name, "failed")
                raise self.failing[radio.name]
            silence(radio)
            self._note(radio.name, "silenced")

        def checked(radio: LoopbackRadio) -> object:
            settings = read_back(radio)
            if radio.parked and settings.tx_gain_db == radio.capabilities.tx_gain_db[0]:
                self._note(radio.name, "read back silent")
            return settings

        monkeypatch.setattr(LoopbackRadio, "_silence", silenced)
        monkeypatch.setattr(LoopbackRadio, "_read_back", checked)

    def _note(self, name: str, what: str) -> None:
        with self._lock:
            self.entries.append((name, what, time.monotonic()))

    def place(self, name: str, what: str) -> int:
        return [entry[:2] for entry in self.entries].index((name, what))

    def when(self, name: str, what: str) -> float:
        return self.entries[self.place(name, what)][2]

    def assert_last(self, jammer: str, others: list[str]) -> None:
        first = self.place(jammer, "silenced")
        for name in others:
            assert self.place(name, "silenced") < self.place(name, "read back silent") < first, self.entries


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Diary]:
    return Diary(monkeypatch)


@pytest.mark.parametrize("jammer_first", [False, True])
@pytest.mark.parametrize("error", [None, RuntimeError("boom"), KeyboardInterrupt(), SystemExit(143)])
def test_the_jammer_is_silenced_after_every_client_has_read_back_silent(
    diary: Diary, jammer_first: bool, error: BaseException | None
) -> None:
    """Whatever ends the block, wherever the jammer stands in the file, and though one client takes its time."""
    diary.slow_s = {"client-2": 0.05}

    def work() -> None:
        with open_lab(lab_of(jammer_first=jammer_first), 1):
            if error is not None:
                raise error

    with suppress(RuntimeError, KeyboardInterrupt, SystemExit):
        work()
    diary.assert_last("jammer", CLIENTS)


def test_a_client_whose_turn_it_is_to_jam_is_silenced_last(diary: Diary) -> None:
    diary.slow_s = {"client-3": 0.05}
    with open_lab(lab_of(), 1) as opened:
        opened.jammed_by("client-2")
    diary.assert_last("client-2", ["client-1", "client-3"])


def test_a_client_that_hangs_keeps_the_jammer_for_so_long_and_no_longer(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    diary.slow_s = {"client-1": 3 * HOLD_S}
    started = time.monotonic()
    with open_lab(lab_of(), 1):
        pass
    held = diary.when("jammer", "silenced") - started
    assert HOLD_S <= held < 2 * HOLD_S
    assert diary.place("jammer", "silenced") < diary.place("client-1", "silenced")
    diary.assert_last("jammer", ["client-2", "client-3"])
    assert "'client-1' has not read back silent: 'jammer' stays on the air" in caplog.text
    assert "what 'client-1' may still send from here on has no noise of 'jammer'" in caplog.text


def test_a_client_that_fails_keeps_the_jammer_too(diary: Diary, caplog: pytest.LogCaptureFixture) -> None:
    """It may go on sending: that it failed at once proves nothing."""
    diary.failing = {"client-1": RadioTimeoutError("client-1 does not answer")}
    with pytest.raises(HardwareError, match="client-1 does not answer"), open_lab(lab_of(), 1):
        pass
    assert diary.when("jammer", "silenced") - diary.when("client-1", "failed") > 0.8 * HOLD_S
    assert "'jammer' stays on the air" in caplog.text


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_radio_that_may_still_send_is_an_error_although_somebody_stops_the_program(
    diary: Diary, stop: BaseException
) -> None:
    """So that commands end with the code of an error, not with that of the signal."""
    diary.failing = {"client-1": RadioTimeoutError("client-1 does not answer")}
    with pytest.raises(HardwareError, match="client-1 does not answer"), open_lab(lab_of(), 1):
        raise stop


def test_a_second_signal_does_not_hide_a_radio_that_may_still_send(diary: Diary) -> None:
    diary.failing = {"client-1": RadioTimeoutError("client-1 does not answer")}
    diary.slow_s = {"client-2": 0.2}
    again = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))

    def work() -> None:
        with open_lab(lab_of(), 1):
            again.start()
            raise KeyboardInterrupt

    with pytest.raises(HardwareError, match="client-1 does not answer"):
        work()
    again.join()


def test_a_jammer_that_does_not_answer_is_not_waited_for(diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(radio: LoopbackRadio) -> None:
        raise HardwareError(f"{radio.name} does not answer")

    monkeypatch.setattr(LoopbackRadio, "check", dead)
    diary.failing = {"client-1": HardwareError("client-1 does not answer")}
    with pytest.raises(HardwareError, match="client-1"), open_lab(lab_of(), 1):
        pass
    assert diary.when("jammer", "silenced") - diary.when("client-1", "failed") < 0.5 * HOLD_S


def test_a_lab_that_never_sent_is_left_at_once(diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jammer that is still parked protects nobody."""
    configure = LoopbackRadio.configure

    def failing(radio: LoopbackRadio, settings: object) -> object:
        if radio.name == "client-2":
            diary.failing = {"client-1": HardwareError("client-1 does not answer")}
            raise HardwareError("client-2 cannot be set")
        return configure(radio, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopbackRadio, "configure", failing)
    started = time.monotonic()
    with pytest.raises(HardwareError, match="client-2 cannot be set"), open_lab(lab_of(), 1):
        pass
    assert time.monotonic() - started < 0.8 * HOLD_S


def test_another_signal_while_it_is_left_waits(diary: Diary) -> None:
    """An impatient second Ctrl-C does not take the jammer off the air before the clients."""
    diary.slow_s = {"client-1": 0.2}
    again = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))

    def work() -> None:
        with open_lab(lab_of(), 1):
            again.start()
            raise RuntimeError("boom")

    with pytest.raises(KeyboardInterrupt):
        work()
    again.join()
    diary.assert_last("jammer", CLIENTS)


FORGETFUL = """
import time
from hardware.lab.opened import open_lab
from hardware.loopback.radio import LoopbackRadio
from tests.hardware.lab.test_leaving import lab_of

silence = LoopbackRadio._silence

def told(radio):
    silence(radio)
    print(radio.name, flush=True)

LoopbackRadio._silence = told
manager = open_lab(lab_of(jammer_first=True), 1)
lab = manager.__enter__()
if ROTATING:
    lab.jammed_by("client-2")
"""


@pytest.mark.parametrize(
    ("rotating", "order"),
    [(False, ["ps", *CLIENTS, "jammer"]), (True, ["ps", "jammer", "client-1", "client-3", "client-2"])],
)
def test_a_program_that_forgets_its_lab(rotating: bool, order: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL.replace("ROTATING", str(rotating))],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", order)
