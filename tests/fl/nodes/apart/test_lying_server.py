"""A server that wants more of a client than its budget allows, whatever it says: nothing more leaves the radio."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.apart.client import ClientSide
from fl.nodes.apart.orders import Begin, Enrol, Order, Settle, Train
from fl.nodes.apart.own_budget import Budget
from fl.nodes.coordinator import VIEW, bounds_of
from fl.nodes.messages import Announcement, Decision, FlatChannel, SoundedChannel, Transmit
from fl.nodes.transmitter import Transmitter
from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.processes.node import ClientProgram
from fl.processes.settings import NodeSettings
from fl.run.charging import ledger_header
from fl.run.config import RunConfig, parse_config
from hardware.lab.model import Role
from phy.errors import AirdpError
from phy.inversion import band_numerology
from tests.fl.nodes.apart.site import lab_of, sections
from tests.fl.nodes.radios import Recorder, transmitter_of

pytestmark = pytest.mark.usefixtures("one_thread")

PLACE, ALPHA_U, NOISE_STD = 0, 0.05, 1e-3
RUN = "a" * 64


def honest_sizes(own: int) -> tuple[int, ...]:
    return (own, own)


@dataclass
class Liar:
    """A server of one client, whose radio keeps what it would send. own: its samples. rows: made up so far."""

    folder: Path
    stack: ExitStack
    budget: Budget
    radio: Recorder = field(default_factory=Recorder)
    own: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self.lab = lab_of(2, self.folder)
        self.start()

    def start(self) -> None:
        """The client's process, anew, with the state that it has."""
        settings = NodeSettings(
            self.lab,
            "client-1",
            Role.CLIENT,
            "tcp://127.0.0.1:1",
            self.folder,
            self.folder / "state" / "client-1",
            budget=self.budget,
        )
        self.program = ClientProgram(settings, self.stack)

    def config(self, **changes: Any) -> RunConfig:
        made = sections(**changes)
        return parse_config({**made, "radio": {**made["radio"], "lab": str(self.folder / "plain.toml")}})

    def enrol(self, **changes: Any) -> RunConfig:
        config = self.config(**changes)
        enrolled = self.program.enrol(Enrol(config.to_toml()))
        self.own, self.coordinates = enrolled.samples, enrolled.coordinates
        return config

    def begin(self, run: str = RUN, sizes: Callable[[int], tuple[int, ...]] = honest_sizes, **changes: Any) -> None:
        config = self.enrol(**changes)
        self.sizes = sizes(self.own)
        self.header = ledger_header(config, np.array(self.sizes), VIEW)
        self.program.begin(run, Begin(self.sizes, self.coordinates, 1.0))

    @property
    def side(self) -> ClientSide:
        """What the client does with orders."""
        carry_out: Any = self.program._carry_out
        side: ClientSide = carry_out.__self__
        return side

    @property
    def air(self) -> AirFormat:
        assert self.side.node is not None
        return self.side.node.transmitter.air

    def say(self, message: Any, uplink: int = 1, permit: str = "") -> Any:
        return self.program.carry_out(Order(RUN, "session", uplink, 0, 1, permit, message))

    def channel(self, **changes: Any) -> SoundedChannel:
        band = band_numerology(self.air.numerology).used_subcarriers.size
        flat = FlatChannel(0.5 + 0j, 0, 0.0, 0.0)
        plain = SoundedChannel(
            np.full(band, 0.5, np.complex64), np.zeros(band), self.air.numerology, 0.0, 0.0, 0, 0, flat
        )
        return dataclasses.replace(plain, **changes)

    def announcement(self, alpha_u: float = ALPHA_U, **changes: Any) -> Announcement:
        return Announcement(alpha_u, self.channel(**changes), 10_000, 5000, NOISE_STD, 0)

    def mechanism(self, decision: Decision, uplink: int = 1, **changes: Any) -> RoundMechanism:
        plain = RoundMechanism(
            uplink=uplink,
            received_gains=(decision.gain_upper, decision.gain_upper),
            sigma=NOISE_STD / ALPHA_U,
            sigma_origin=SigmaOrigin.MEASURED,
            record_bounded=self.side.clipping.per_sample,
            clip_norm=self.side.clipping.norm,
            alpha_u=ALPHA_U,
            alpha_cj=0.0,
            jammer_gain=0.0,
            noise_std_real=NOISE_STD,
            view=VIEW,
            bounds=bounds_of(self.air, 2, jams=False, rounding=0.0),
        )
        return dataclasses.replace(plain, **changes)

    def row(self, mechanism: RoundMechanism, header: LedgerHeader | None = None) -> str:
        self.rows += 1
        with Ledger.create(self.folder / f"server-{self.rows}.jsonl", header or self.header) as ledger:
            ledger.authorise(mechanism)
            return ledger.last_line

    def train(self, uplink: int = 1) -> None:
        self.say(Train(uplink, np.zeros(self.coordinates, np.float32)), uplink)

    def uplink(self, number: int = 1, **changes: Any) -> str:
        """A whole one, by the rules. changes: of the mechanism in its row, which is returned."""
        self.train(number)
        decision = self.say(self.announcement(), number)
        mechanism = self.mechanism(decision, number, **changes)
        row = self.row(mechanism)
        self.say(Transmit(10_000), number, row)
        self.say(Settle(json.loads(row)["hash"], json.dumps(mechanism.to_json())), number)
        return row


@contextmanager
def liar(folder: Path, budget: Budget | None = None) -> Iterator[Liar]:
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        here = Liar(folder, stack, budget or Budget())

        def transmitter(self: ClientProgram, air: AirFormat) -> Transmitter:
            return transmitter_of(here.radio, air)

        patch.setattr(ClientProgram, "_transmitter", transmitter)
        yield here


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> float:
    """What one uplink costs."""
    with liar(tmp_path_factory.mktemp("one")) as here:
        here.begin()
        here.uplink()
        assert len(here.radio.sent) == 1
        spent = here.side.ledger.epsilon()
        assert 0.1 < spent < 100.0
        return spent


def once_more(here: Liar) -> None:
    here.uplink(2)


def a_smaller_gain(here: Liar) -> None:
    here.uplink(2, received_gains=(1e-6, 1e-6))


def more_noise(here: Liar) -> None:
    here.uplink(2, sigma=1e3)


def another_factor(here: Liar) -> None:
    here.uplink(2, alpha_u=1e-9, sigma=NOISE_STD / 1e-9)


def bounds_that_never_fail(here: Liar) -> None:
    here.uplink(2, bounds=())


def started_anew(here: Liar) -> None:
    here.start()
    here.begin()
    here.uplink(2)


def another_run(here: Liar) -> None:
    here.begin("b" * 64)
    here.uplink()


def another_delta(here: Liar) -> None:
    here.begin("c" * 64, privacy={"delta": 0.9})
    here.uplink()


def a_larger_clip_norm(here: Liar) -> None:
    here.begin("d" * 64, privacy={"clip_norm": 10.0})
    here.uplink()


def another_accountant(here: Liar) -> None:
    here.begin("e" * 64, privacy={"accountant": "exact"})
    here.uplink()
    here.begin("f" * 64, privacy={"accountant": "exact"})
    here.uplink()
    here.uplink(2)


def other_sizes_under_the_same_name(here: Liar) -> None:
    """With a client of a thousand million samples beside it, what it has sent would look like nothing."""
    here.begin(sizes=lambda own: (own, 10**9))
    here.uplink(2)


def run_called(name: str) -> Callable[[Liar], None]:
    def attack(here: Liar) -> None:
        here.begin(name)
        here.uplink()

    attack.__name__ = f"a run called {name!r}"
    return attack


ATTACKS: list[Callable[[Liar], None]] = [
    *(once_more, a_smaller_gain, more_noise, another_factor, bounds_that_never_fail),
    *(started_anew, another_run, another_delta, a_larger_clip_norm, another_accountant),
    other_sizes_under_the_same_name,
    *map(run_called, ("", ".", "..", "../elsewhere", "deeper/down", "/nowhere/else", "A" * 64, RUN + "\n")),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_leaves_beyond_the_budget(tmp_path: Path, attack: Callable[[Liar], None], of_one: float) -> None:
    """A budget in which one uplink has room and two have not."""
    with liar(tmp_path / "here", Budget(1.2 * of_one)) as here:
        here.begin()
        here.uplink()
        assert len(here.radio.sent) == 1
        with pytest.raises(AirdpError):
            attack(here)
        # By the exact accountant one more may have room: never more than that.
        assert len(here.radio.sent) == (2 if attack is another_accountant else 1)
    kept = {path.relative_to(tmp_path).parts[:3] for path in tmp_path.rglob("ledger.jsonl")}
    assert {parts[:2] for parts in kept} == {("here", "state")}


def test_a_row_is_used_once_whatever_the_run_is_called(tmp_path: Path) -> None:
    with liar(tmp_path) as here:
        here.begin()
        row = here.uplink()
        here.begin("b" * 64)
        here.train()
        here.say(here.announcement())
        with pytest.raises(PrivacyError, match="used before"):
            here.say(Transmit(10_000), permit=row)
        assert len(here.radio.sent) == 1


def test_what_was_decided_is_void_once_something_else_is_announced(tmp_path: Path) -> None:
    """Also where the client finds that nothing can be decided: it must not send for the one on the row of the other."""
    with liar(tmp_path) as here:
        here.begin()
        here.train()
        row = here.row(here.mechanism(here.say(here.announcement())))
        with pytest.raises(PrivacyError, match="no channel leads to"):
            here.say(here.announcement(1000 * ALPHA_U, cfo_std_cycles_per_sample=math.nan))
        with pytest.raises(PrivacyError, match="has not decided"):
            here.say(Transmit(10_000), permit=row)
        assert here.side.node is not None
        with pytest.raises(PrivacyError, match="after it has decided"):
            here.side.node.answer(Transmit(10_000))
        assert here.radio.sent == []


@pytest.mark.parametrize(
    "config",
    [{"privacy": {"clip_norm": 50.0}}, {"local": {"epochs": 3}}, {"uplink": {"kind": "radio", "uplinks": 9}}],
    ids=["another clip norm", "another training", "the same clip norm"],
)
def test_another_config_is_another_beginning(tmp_path: Path, config: dict[str, Any]) -> None:
    """Trained under the one and charged under the other, an update would be 50 times too long."""
    with liar(tmp_path) as here:
        here.begin()
        here.enrol(**config)
        with pytest.raises(AirdpError, match="has not begun any run"):
            here.train()


def test_a_config_that_cannot_be_used_leaves_none(tmp_path: Path) -> None:
    with liar(tmp_path) as here:
        here.begin()
        with pytest.raises(AirdpError):
            here.enrol(data={"train_samples": 10**6})
        with pytest.raises(AirdpError, match="not enrolled"):
            here.program.begin("b" * 64, Begin(here.sizes, here.coordinates, 1.0))


def test_an_update_that_is_bounded_otherwise_than_charged_is_not_sent(tmp_path: Path) -> None:
    """Whatever brought it about."""
    with liar(tmp_path) as here:
        here.begin()
        here.train()
        side = here.side
        decision = here.say(here.announcement())
        row = here.row(here.mechanism(decision))
        side.clipping = dataclasses.replace(side.clipping, norm=side.clipping.norm / 2)
        with pytest.raises(PrivacyError, match="this client clipped to"):
            here.say(Transmit(10_000), permit=row)
        assert here.radio.sent == []


def test_a_failure_that_may_depend_on_data_is_said_once(tmp_path: Path) -> None:
    """With a model of the server's choice each time, training that fails or not tells a bit of the data each time."""
    with liar(tmp_path) as here:
        here.begin()
        bad = np.full(here.coordinates, np.float32(3e38))
        with pytest.raises(AirdpError, match="could not train for uplink 1; its own log says why"):
            here.say(Train(1, bad))
        with pytest.raises(PrivacyError, match="until it is started anew"):
            here.say(here.announcement())
        # Another run is none of another process.
        here.begin("b" * 64)
        with pytest.raises(PrivacyError, match="until it is started anew"):
            here.train()
        here.start()
        here.begin()
        here.uplink()


def test_files_of_this_machine_are_the_clients_own(tmp_path: Path) -> None:
    """What is in a file, or whether it is there, is nothing for a server to ask."""
    np.savez(tmp_path / "secret.npz", x=np.zeros((40, 64), np.float32), y=np.arange(40) % 10)
    with liar(tmp_path) as here:
        for path in ("secret.npz", "nothing.npz"):
            with pytest.raises(AirdpError, match="names files of this machine"):
                here.enrol(data={"set": "npz", "path": str(tmp_path / path), "train_samples": 0})
