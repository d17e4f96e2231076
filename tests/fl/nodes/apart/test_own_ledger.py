"""What a client checks before it sends, what it writes down, and what it refuses."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from fl.errors import LedgerError, PrivacyError
from fl.nodes.apart.comparison import compare
from fl.nodes.apart.own_budget import Budget, Claim
from fl.nodes.apart.own_ledger import PERMITS, OwnLedger, Promise
from fl.privacy.accountant import Accountant, epsilon_exact
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
        sigma=0.2,
        sigma_origin=SigmaOrigin.MEASURED,
        record_bounded=False,
        clip_norm=0.5,
        alpha_u=0.1,
        alpha_cj=0.02,
        jammer_gain=1.0,
        noise_std_real=0.0006,
        view=View.SAMPLES,
        bounds=(("noise", 1e-9), ("client gains", 2e-9)),
    )
    return dataclasses.replace(planned, **changes)  # type: ignore[arg-type]


def few(senders: int, jams: bool) -> float:
    return (senders + 1) * 1e-9 if jams else 1.0


def promise(uplink: int = 1, gain_upper: float = 1.01) -> Promise:
    return Promise(uplink, gain_upper, 0.0, 0.5, record_bounded=False, alpha_u=0.1, noise_std_real=0.0006, bounds=few)


@pytest.fixture
def server(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "server.jsonl", HEADER)


def permit(server: Ledger, planned: RoundMechanism) -> str:
    server.authorise(planned)
    return server.last_line


def own(tmp_path: Path, epsilon: float = math.inf) -> OwnLedger:
    return OwnLedger(tmp_path / "own", HEADER, PLACE, Budget(epsilon), Accountant.EXACT)


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
        ({"alpha_u": 0.05}, "another common factor"),
        ({"noise_std_real": 0.0007}, "more noise of its receiver"),
        ({"sigma": 0.21}, "more noise than its parts"),
        ({"bounds": (("noise", 1e-9),)}, "less than its bounds may fail"),
        ({"bounds": ()}, "less than its bounds may fail"),
        ({"bounds": None}, "less than its bounds may fail"),
    ],
)
def test_a_row_that_charges_less_than_is_sent_is_refused(
    tmp_path: Path, server: Ledger, changes: dict[str, object], said: str
) -> None:
    ledger = own(tmp_path)
    with pytest.raises(PrivacyError, match=said):
        ledger.authorise(permit(server, mechanism(**changes)), promise())  # type: ignore[arg-type]
    assert read_ledger(tmp_path / "own" / "ledger.jsonl").authorised == 0


def test_a_gain_that_is_no_number_is_no_gain(tmp_path: Path, server: Ledger) -> None:
    """A server that announces a channel of NaN must not get away with a row that charges next to nothing."""
    row = permit(server, mechanism(received_gains=(1.02, 1e-9)))
    with pytest.raises(PrivacyError, match="a gain of 1e-09"):
        own(tmp_path).authorise(row, promise(gain_upper=math.nan))


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


def spent_on_one(tmp_path: Path, server: Ledger, budget: Budget, header: LedgerHeader = HEADER) -> float:
    """Own epsilon after one uplink, in a state of its own."""
    ledger = OwnLedger(tmp_path / "own", header, PLACE, budget, Accountant.EXACT)
    ledger.authorise(permit(server, mechanism()), promise())
    ledger.settle(read_hash(server), json.dumps(mechanism().to_json()))
    spent = ledger.epsilon()
    ledger.close()
    return spent


def test_all_runs_of_a_state_count_against_one_budget(tmp_path: Path, server: Ledger) -> None:
    """A server that begins another run, under another config, does not begin another budget."""
    one = spent_on_one(tmp_path / "alone", server, Budget())
    state = tmp_path / "state"
    first = OwnLedger(state / "first", HEADER, PLACE, Budget(1.2 * one), Accountant.EXACT)
    first.authorise(permit(server, mechanism()), promise())
    first.settle(read_hash(server), json.dumps(mechanism().to_json()))
    first.close()
    another = dataclasses.replace(HEADER, config_sha256="1" * 64, delta=0.5)
    second = OwnLedger(state / "second", another, PLACE, Budget(1.2 * one), Accountant.EXACT)
    assert second.epsilon() == pytest.approx(one)
    with pytest.raises(PrivacyError, match="all its runs together"):
        second.authorise(permit(server, mechanism()), promise())
    (state / "first" / "ledger.jsonl").write_bytes(b"{}\n")
    with pytest.raises(LedgerError):
        OwnLedger(state / "third", another, PLACE, Budget(100.0), Accountant.EXACT)
    # Who limits nothing is not kept from taking part.
    OwnLedger(state / "fourth", another, PLACE, Budget(), Accountant.EXACT).close()


def test_a_ledger_is_taken_up_for_the_run_and_the_client_that_began_it(tmp_path: Path, server: Ledger) -> None:
    """With other sizes of the clients all that was sent before would count for less, as what it was not."""
    ledger = own(tmp_path)
    ledger.authorise(permit(server, mechanism()), promise())
    ledger.close()
    before = (tmp_path / "own" / "ledger.jsonl").read_bytes()
    many = dataclasses.replace(HEADER, sizes=(10**9, 300))
    for header, place in ((many, PLACE), (HEADER, 0)):
        with pytest.raises(LedgerError, match="was begun with another config, other sizes"):
            OwnLedger(tmp_path / "own", header, place, Budget(), Accountant.EXACT)
    assert (tmp_path / "own" / "ledger.jsonl").read_bytes() == before
    own(tmp_path).close()


def test_a_row_of_another_run_of_the_state_is_a_used_one(tmp_path: Path, server: Ledger) -> None:
    row = permit(server, mechanism())
    first = OwnLedger(tmp_path / "state" / "first", HEADER, PLACE, Budget(), Accountant.EXACT)
    first.authorise(row, promise())
    first.close()
    second = OwnLedger(tmp_path / "state" / "second", HEADER, PLACE, Budget(), Accountant.EXACT)
    with pytest.raises(PrivacyError, match="used before"):
        second.authorise(row, promise())


def test_what_a_kill_leaves_of_one_run_hinders_no_other_and_counts(tmp_path: Path, server: Ledger) -> None:
    """Cut off in the middle of a row, before the first row, and before there was a file."""
    state = tmp_path / "state"

    def begun(name: str) -> OwnLedger:
        return OwnLedger(state / name, HEADER, PLACE, Budget(100.0), Accountant.EXACT)

    torn = begun("torn")
    torn.authorise(permit(server, mechanism()), promise())
    spent = torn.epsilon()
    torn.close()
    with (state / "torn" / "ledger.jsonl").open("r+b") as file:
        file.truncate((state / "torn" / "ledger.jsonl").stat().st_size - 40)
    for name in ("empty", "nothing"):
        begun(name).close()
        for path in (state / name).iterdir():
            path.unlink()
    (state / "empty" / "ledger.jsonl").touch()
    for name in ("other", "empty", "nothing", "torn"):
        ledger = begun(name)
        assert ledger.epsilon() == spent
        ledger.close()


def test_delta_and_claim_of_a_budget_are_the_clients_own(tmp_path: Path, server: Ledger) -> None:
    """Whatever delta and label the server's config has."""
    loose = dataclasses.replace(HEADER, delta=0.5)
    as_run = spent_on_one(tmp_path / "a", server, Budget())
    assert spent_on_one(tmp_path / "b", server, Budget(), loose) == as_run
    assert spent_on_one(tmp_path / "c", server, Budget(delta=1e-3)) < as_run
    assert spent_on_one(tmp_path / "d", server, Budget(neighbours=Neighbours.REPLACE_ONE)) > as_run
    assert spent_on_one(tmp_path / "e", server, Budget(label=Label.CLIENT)) > 100 * as_run
    assert spent_on_one(tmp_path / "f", server, Budget(label=Label.RECORD)) == math.inf
    # Bounds that may fail more often than delta allows leave nothing.
    assert spent_on_one(tmp_path / "g", server, Budget(delta=2e-9)) == math.inf


def read_hash(server: Ledger) -> str:
    return str(json.loads(server.last_line)["hash"])


def test_an_account_is_taken_over_once_and_never_for_less(tmp_path: Path, server: Ledger) -> None:
    ledger, row = own(tmp_path), permit(server, mechanism())
    ledger.authorise(row, promise())
    charged = ledger.epsilon()
    for less in (
        mechanism(received_gains=(1.02, 0.5)),
        mechanism(sigma=0.21),
        mechanism(record_bounded=True),
        mechanism(bounds=()),
        mechanism(clip_norm=5.0),
    ):
        with pytest.raises(PrivacyError, match="accounts for less"):
            ledger.settle(read_hash(server), json.dumps(less.to_json()))
    assert ledger.epsilon() == charged
    ledger.settle(read_hash(server), json.dumps(mechanism().to_json()))
    assert ledger.epsilon() < charged
    settled = ledger.epsilon()
    ledger.settle(read_hash(server), json.dumps(mechanism().to_json()))
    ledger.settle("f" * 64, json.dumps(mechanism().to_json()))
    assert ledger.epsilon() == settled


def test_a_clients_epsilon_beyond_what_dither_vouches_for_charges_rounding_whole() -> None:
    """A record of 400 moves its client by 1/400. With a sigma that makes its mu 7, epsilon is 53, and rounding that
    may add as much again counts."""
    sigma = 1.01 / 400 / 7.0
    claim = Claim(HEADER, PLACE, Label.PAPER_CLAIM, Neighbours.ZERO_OUT)
    spent = claim.spent_on([mechanism(sigma=sigma, rounding=7.0 * sigma)])
    assert spent.epsilon(Accountant.EXACT, 1e-5) == pytest.approx(epsilon_exact(14.0**2 / 2, 1e-5), rel=1e-3)
    quiet = claim.spent_on([mechanism(sigma=7.0 * sigma, rounding=7.0 * sigma)])
    assert quiet.epsilon(Accountant.EXACT, 1e-5) == pytest.approx(epsilon_exact(0.5, 1e-5), rel=1e-3)


def test_an_account_that_rests_on_one_bound_more_is_taken_over(tmp_path: Path, server: Ledger) -> None:
    """As where less noise was heard beside a payload than was planned: what is left is a bound of its own."""
    ledger, row = own(tmp_path), permit(server, mechanism())
    ledger.authorise(row, promise())
    planned = mechanism()
    beside = ("noise beside the payload", 1e-9)
    quieter = mechanism(sigma=0.19, bounds=(*(planned.bounds or ()), beside))
    ledger.settle(read_hash(server), json.dumps(quieter.to_json()))
    assert read_ledger(tmp_path / "own" / "ledger.jsonl").mechanisms == (quieter,)


def kept(tmp_path: Path, server: Ledger, settled: RoundMechanism, number: int = 1) -> None:
    """One more uplink of a client, from the server's row to its account."""
    folder = tmp_path / "own"
    ledger = OwnLedger(folder, HEADER, PLACE, Budget(), Accountant.EXACT)
    ledger.authorise(permit(server, mechanism(number)), promise(number))
    ledger.settle(read_hash(server), json.dumps(settled.to_json()))
    ledger.close()


def test_both_ledgers_are_compared_row_by_row(tmp_path: Path, server: Ledger) -> None:
    noisier = mechanism(2, sigma=0.2, alpha_cj=0.02)
    quieter = mechanism(2, sigma=0.1, alpha_cj=0.01)
    kept(tmp_path, server, mechanism())
    server.account(1, mechanism())
    kept(tmp_path, server, quieter, 2)
    honest, lying = tmp_path / "honest.jsonl", tmp_path / "lying.jsonl"
    for path, account in ((honest, quieter), (lying, noisier)):
        shutil.copy(tmp_path / "server.jsonl", path)
        Ledger.open(path, resumed=False).account(3, account)
    (found,) = compare(honest, [tmp_path / "own"])
    assert (found.sent, found.unknown, found.lowered, found.under_counted) == (2, 0, 0, False)
    assert found.own_loss == pytest.approx(found.server_loss)
    # It has told the client of less noise than it counts with.
    (found,) = compare(lying, [tmp_path / "own"])
    assert (found.unknown, found.lowered, found.under_counted) == (0, 1, True)
    # Without any account the server counts without the jammer, which is no less.
    (found,) = compare(tmp_path / "server.jsonl", [tmp_path / "own"])
    assert (found.unknown, found.lowered) == (0, 0)
    another = Ledger.create(tmp_path / "another.jsonl", HEADER)
    another.authorise(mechanism())
    (found,) = compare(tmp_path / "another.jsonl", [tmp_path / "own"])
    assert (found.unknown, found.under_counted) == (2, True)


def test_the_command_says_whose_ledger_lacks_something(tmp_path: Path, server: Ledger, command: Any) -> None:
    kept(tmp_path, server, mechanism())
    said = command("ledger", tmp_path / "server.jsonl", "--against", tmp_path / "own")
    assert (said.code, "1 transmissions of its own, 0 of them on rows that are not here" in said.out) == (0, True)
    another = Ledger.create(tmp_path / "another.jsonl", HEADER)
    another.authorise(mechanism())
    said = command("ledger", tmp_path / "another.jsonl", "--against", tmp_path / "own")
    assert (said.code, "1 of them on rows that are not here" in said.out) == (3, True)
