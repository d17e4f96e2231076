"""What a client checks before it sends, what it writes down, and what it refuses."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from fl.errors import LedgerError, PrivacyError
from fl.nodes.apart.own_ledger import PERMITS, Budget, OwnLedger, Promise
from fl.privacy.accountant import Accountant
from fl.privacy.conditions import JammerTrust, View
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours

HEADER = LedgerHeader(
    sizes=(100, 300),
    delta=1e-5,
    label=Label.PAPER_CLAIM,
    neighbours=Neighbours.ZERO_OUT,
    config_sha256="0" * 64,
    view=View.SAMPLES,
    jammer=JammerTrust.DEDICATED,
    delta_bounds=1e-7,
    confidence=0.999,
)
PLACE = 1


def mechanism(uplink: int = 1, **changes: object) -> RoundMechanism:
    planned = RoundMechanism(
        uplink=uplink,
        received_gains=(1.02, 1.01),
        sigma=0.01,
        sigma_origin=SigmaOrigin.MEASURED,
        record_bounded=False,
        clip_norm=0.5,
        alpha_u=0.1,
        alpha_cj=0.02,
        jammer_gain=1.0,
        noise_std_real=0.0006,
        view=View.SAMPLES,
        bounds=(("noise", 1e-9),),
    )
    return dataclasses.replace(planned, **changes)  # type: ignore[arg-type]


def promise(uplink: int = 1, gain_upper: float = 1.01) -> Promise:
    return Promise(uplink, gain_upper, 0.5, record_bounded=False)


@pytest.fixture
def server(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "server.jsonl", HEADER)


def permit(server: Ledger, planned: RoundMechanism) -> str:
    server.authorise(planned)
    return server.last_line


def own(tmp_path: Path, epsilon: float = math.inf) -> OwnLedger:
    return OwnLedger(tmp_path / "own", HEADER, PLACE, Budget(epsilon, Accountant.EXACT))


def test_a_row_allows_one_transmission_and_is_on_disk_before_it(tmp_path: Path, server: Ledger) -> None:
    ledger, row = own(tmp_path), permit(server, mechanism())
    ledger.authorise(row, promise())
    written = read_ledger(tmp_path / "own" / "ledger.jsonl")
    assert (written.authorised, written.accounted) == (1, 0)
    assert written.mechanisms == (mechanism().without_jammer(),)
    with pytest.raises(PrivacyError, match="used before"):
        ledger.authorise(row, promise())
    assert read_ledger(tmp_path / "own" / "ledger.jsonl").authorised == 1


def test_a_row_stays_used_after_a_restart(tmp_path: Path, server: Ledger) -> None:
    row = permit(server, mechanism())
    ledger = own(tmp_path)
    ledger.authorise(row, promise())
    ledger.close()
    with pytest.raises(PrivacyError, match="used before"):
        own(tmp_path).authorise(row, promise())


def test_a_cut_off_line_of_used_rows_is_no_hindrance_and_damage_is(tmp_path: Path, server: Ledger) -> None:
    row = permit(server, mechanism())
    ledger = own(tmp_path)
    ledger.authorise(row, promise())
    ledger.close()
    used = tmp_path / "own" / PERMITS
    with used.open("ab") as file:
        file.write(b'{"row": "12')
    again = own(tmp_path)
    with pytest.raises(PrivacyError, match="used before"):
        again.authorise(row, promise())
    again.authorise(permit(server, mechanism(2)), promise(2))
    again.close()
    used.write_bytes(b"nonsense\n" + used.read_bytes())
    with pytest.raises(LedgerError, match="line 1 is damaged"):
        own(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uplink": 2}, "another uplink"),
        ({"received_gains": (1.02, 1.0)}, "a gain of 1"),
        ({"received_gains": (1.02, 0.0)}, "a gain of 0"),
        ({"received_gains": (1.02, 1.01, 1.0)}, "other clients"),
        ({"clip_norm": 0.4}, "another clip norm"),
        ({"record_bounded": True}, "another way of clipping"),
        ({"view": View.CELLS}, "a weaker adversary"),
    ],
)
def test_a_row_that_charges_less_than_is_sent_is_refused(
    tmp_path: Path, server: Ledger, changes: dict[str, object], said: str
) -> None:
    ledger = own(tmp_path)
    with pytest.raises(PrivacyError, match=said):
        ledger.authorise(permit(server, mechanism(**changes)), promise())  # type: ignore[arg-type]
    assert read_ledger(tmp_path / "own" / "ledger.jsonl").authorised == 0


@pytest.mark.parametrize("text", ["", "{}\n", "null\n", "[" * 5000 + "\n", '{"hash":"0"}\n'])
def test_what_is_no_row_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LedgerError, match="not a row"):
        own(tmp_path).authorise(text, promise())


def test_a_row_that_was_changed_is_refused(tmp_path: Path, server: Ledger) -> None:
    row = permit(server, mechanism())
    with pytest.raises(LedgerError, match="does not match its hash"):
        own(tmp_path).authorise(row.replace("1.01", "1.09"), promise())


def test_other_rows_allow_nothing(tmp_path: Path, server: Ledger) -> None:
    with pytest.raises(PrivacyError, match="authorises nothing"):
        own(tmp_path).authorise(server.last_line, promise())


def test_the_clients_own_budget_is_kept_whatever_the_server_says(tmp_path: Path, server: Ledger) -> None:
    free = own(tmp_path / "free")
    free.authorise(permit(server, mechanism()), promise())
    free.settle(read_hash(server), json.dumps(mechanism().to_json()))
    spent = free.epsilon()
    assert 0 < spent < free.epsilon(mechanism(2))
    careful = own(tmp_path / "careful", epsilon=1.2 * spent)
    careful.authorise(permit(server, mechanism(2)), promise(2))
    careful.settle(read_hash(server), json.dumps(mechanism(2).to_json()))
    with pytest.raises(PrivacyError, match="above its budget"):
        careful.authorise(permit(server, mechanism(3)), promise(3))
    assert careful.epsilon() == pytest.approx(spent)


def read_hash(server: Ledger) -> str:
    return str(json.loads(server.last_line)["hash"])


def test_an_account_is_taken_over_once_and_never_for_less(tmp_path: Path, server: Ledger) -> None:
    ledger, row = own(tmp_path), permit(server, mechanism())
    ledger.authorise(row, promise())
    charged = ledger.epsilon()
    for less in (mechanism(received_gains=(1.02, 0.5)), mechanism(sigma=0.02)):
        with pytest.raises(PrivacyError, match="accounts for less"):
            ledger.settle(read_hash(server), json.dumps(less.to_json()))
    assert ledger.epsilon() == charged
    ledger.settle(read_hash(server), json.dumps(mechanism().to_json()))
    assert ledger.epsilon() < charged
    settled = ledger.epsilon()
    ledger.settle(read_hash(server), json.dumps(mechanism().to_json()))
    ledger.settle("f" * 64, json.dumps(mechanism().to_json()))
    assert ledger.epsilon() == settled
