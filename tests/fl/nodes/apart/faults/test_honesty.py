"""A client that sends with more than it announced: seen in its decision, in the payload, or when it sounds next."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fl.errors import RunFolderError
from fl.nodes.apart.honesty import DishonestError, Honesty
from fl.nodes.apart.levels import NAME, Levels
from fl.nodes.coordinator import Round
from fl.nodes.messages import Received
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.ledger import read_ledger
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.replay import replay
from fl.uplink.jammer import JammerRole
from tests.fl.nodes.apart.faults.soak import STILL_AIR
from tests.fl.nodes.apart.faults.witness import arm, set_right
from tests.fl.nodes.apart.site import PATIENT, Site, sections, site
from tests.fl.nodes.radios import TAU, lab_of, nothing, opened, power_of, sent_by, updates_of

COORDINATES = 1000
SHORT: dict[str, Any] = {"quiet_samples": 8192, "sounding_symbols": 8}


@contextmanager
def uplink_of(alpha_u: float = 300.0) -> Iterator[tuple[RadioUplink, Honesty]]:
    power = power_of(
        alpha_u=alpha_u, jammer_role=JammerRole.DEDICATED, jammer_sigma=1e-3, max_phase_error_rad=3.0, diagnosis=False
    )
    with opened(lab_of(fading="rayleigh"), COORDINATES, power=power, payload_rms=0.5, **SHORT) as uplink:
        yield uplink, Honesty(uplink.cast.clients, uplink.air, uplink.weights, TAU, max_rise_db=3.0)


def payload(uplink: RadioUplink, current: Round, louder: float = 1.0) -> Received:
    """What arrives of updates that all point the same way, where the first client sends `louder` times as much."""
    send = uplink.clients[0].transmitter.send

    def lying(cells: Any, scale: float, *conditions: Any) -> Any:
        return send(cells, scale * louder, *conditions)

    uplink.clients[0].transmitter.send = lying  # type: ignore[method-assign]
    kept: list[Received] = []
    carry = uplink.coordinator.carry

    def carried(planned: Round) -> Received:
        kept.append(carry(planned))
        return kept[0]

    uplink.coordinator.carry = carried  # type: ignore[method-assign]
    uplink._round = current
    uplink.exchange(current.plan, sent_by(current.plan, updates_of(COORDINATES)), nothing)
    return kept[0]


@pytest.mark.parametrize("alpha_u", [3.0, 300.0], ids=["everybody at full gain", "with back-offs"])
def test_honest_clients_are_believed(alpha_u: float) -> None:
    """Also the loudest honest payload: all updates of full norm, and the same."""
    with uplink_of(alpha_u) as (uplink, honesty):
        current = uplink.coordinator.plan(1, 0)
        honesty.planned(current)
        honesty.received(current, payload(uplink, current))


def test_a_payload_that_is_louder_than_all_announced_gains_is_seen() -> None:
    with uplink_of(3.0) as (uplink, honesty):
        current = uplink.coordinator.plan(1, 0)
        with pytest.raises(DishonestError, match="one of them sends with more"):
            honesty.received(current, payload(uplink, current, louder=3.0))


@pytest.mark.parametrize(
    "changes",
    [{"gain_upper": 0.9}, {"backoff": 1.1}, {"gain_upper": 0.5, "backoff": 2.0}],
    ids=["a smaller gain", "a larger back-off", "both"],
)
def test_a_decision_below_what_follows_from_the_sounding_is_refused(changes: dict[str, float]) -> None:
    """changes: factors on what the second client says."""
    with uplink_of() as (uplink, honesty):
        current = uplink.coordinator.plan(1, 0)
        said = current.decisions[1]
        lie = replace(said, **{name: getattr(said, name) * factor for name, factor in changes.items()})
        decisions = (current.decisions[0], lie, *current.decisions[2:])
        with pytest.raises(DishonestError, match=f"'{uplink.cast.clients[1]}' announces"):
            honesty.planned(replace(current, decisions=decisions))


STILL = {"max_gain_rise_db": 3.0}
"""Below the 6 dB of a lie, and above what soundings of channels that stand still differ by."""


@contextmanager
def lying_site(folder: Path) -> Iterator[Site]:
    """Two clients, of which the second is turned up by 6 dB when it sends its first payload."""
    with site(folder, changes={**STILL_AIR, "lab": {**STILL_AIR["lab"], **PATIENT["lab"]}}) as here:
        here.watched = True
        arm(folder, "client-2", do="lie", db=6.0)
        here.start_all()
        yield here


def all_anew(here: Site) -> None:
    """With radios as they should be."""
    set_right(here.folder, "client-2")
    for process in here.processes.values():
        process.join(100)
    here.start_all()


@pytest.mark.usefixtures("no_figures", "one_thread")
def test_a_client_that_is_turned_up_for_its_payload_is_seen_in_the_next_sounding(tmp_path: Path) -> None:
    with lying_site(tmp_path) as here:
        with pytest.raises(DishonestError, match=r"'client-2' sounds 6\.0 dB louder"):
            here.run(sections(uplinks=3, radio=STILL))
        # Nothing was sent after the one in which it lied; with the radio as it should be the run goes on.
        assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 1
        all_anew(here)
        assert here.run(sections(uplinks=3, radio=STILL), resume=True).uplinks == 3


@pytest.mark.usefixtures("no_figures", "one_thread")
def test_after_the_last_payload_everybody_sounds_once_more(tmp_path: Path) -> None:
    """Without that a run's last uplink would be the one to lie in."""
    with lying_site(tmp_path) as here:
        with pytest.raises(DishonestError, match=r"'client-2' sounds 6\.0 dB louder"):
            here.run(sections(uplinks=1, radio={**STILL, "record": "all"}))
        assert not (tmp_path / "run" / "result.json").exists()
        all_anew(here)
        result = here.run(sections(uplinks=1, radio={**STILL, "record": "all"}), resume=True)
        assert (result.status, result.uplinks, result.transmissions_charged) == (FINISHED, 1, 1)
    # It is no uplink: nothing of it is in the captures.
    played = replay(RunFolder(tmp_path / "run"))
    assert (len(played.attempts), played.same) == (1, True)


@pytest.mark.usefixtures("no_figures", "one_thread")
def test_a_server_that_takes_the_run_up_knows_how_loud_everybody_was(tmp_path: Path) -> None:
    class CrashError(BaseException):
        pass

    def crash(metrics: UplinkMetrics) -> None:
        raise CrashError

    with lying_site(tmp_path) as here:
        # It goes without a word, as one that is killed: clients that are told to leave would end.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fl.nodes.apart.uplink.ApartUplink.leave", lambda self: None)
            with pytest.raises(CrashError):
                here.run(sections(uplinks=3, radio=STILL), on_uplink=crash)
        with pytest.raises(DishonestError, match=r"'client-2' sounds 6\.0 dB louder"):
            here.run(sections(uplinks=3, radio=STILL), resume=True)
        assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 1


def test_levels_outlive_the_process_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / NAME
    levels = Levels(path)
    assert levels.before_db("one") == math.inf
    levels.keep({"one": -3.5, "two": -math.inf})
    levels.keep({"two": 1.0})
    again = Levels(path)
    assert [again.before_db(name) for name in ("one", "two", "three")] == [-3.5, 1.0, math.inf]
    for content in (b"", b"[]", b'{"one": "loud"}', b'{"one": NaN}', b'{"one": null}'):
        path.write_bytes(content)
        with pytest.raises(RunFolderError, match=f"{NAME} is damaged"):
            Levels(path)
