"""Configs: what ships loads, what is mistyped is refused by name, and a resolved config says everything."""

import json
import tomllib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.privacy.sensitivity import Label
from fl.run.config import RunConfig, load_config, parse_config, shipped_configs

SECTIONS = tuple(name for name in RunConfig.model_fields if name not in ("name", "description", "seed"))


def refused(sections: dict[str, Any], *parts: str) -> str:
    """The one line with which a config is refused; every one of `parts` is in it."""
    with pytest.raises(ConfigError) as caught:
        parse_config(sections)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


@pytest.mark.parametrize("name", list(shipped_configs()))
def test_every_shipped_config_loads_and_describes_itself(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    assert len(config.description) > 20


def test_what_ships() -> None:
    assert {"quickstart", "emnist"} <= set(shipped_configs())


def test_the_shipped_emnist_config_is_the_papers_set_up() -> None:
    config = load_config("emnist")
    assert (config.partition.clients, config.partition.classes_per_client) == (50, 5)
    assert (config.data.train_samples, config.model.hidden) == (10_000, 196)
    assert (config.local.epochs, config.local.lr, config.local.momentum) == (20, 0.05, 0.5)
    assert (config.uplink.uplinks, config.privacy.epsilon, config.privacy.delta) == (80, 6.52, 1e-5)
    assert (config.channel.snr_db, config.algorithm.mu) == (1.0, 0.1)


@pytest.mark.parametrize(
    ("sections", "given_key", "nearest"),
    [
        ({"dat": {}}, "dat", "data"),
        ({"uplinks": 3}, "uplinks", "uplink"),
        ({"sed": 3}, "sed", "seed"),
        ({"local": {"epoch": 3}}, "local.epoch", "epochs"),
        ({"local": {"learning_rate": 3}}, "local.learning_rate", "valid here"),
        ({"privacy": {"epsilom": 3}}, "privacy.epsilom", "epsilon"),
        ({"jammer": {"rolle": "none"}}, "jammer.rolle", "role"),
        ({"data": {"train_sample": 3}}, "data.train_sample", "train_samples"),
        ({"partition": {"client": 3}}, "partition.client", "clients"),
        ({"model": {"hiden": 3}}, "model.hiden", "hidden"),
        ({"algorithm": {"nam": "fedavg"}}, "algorithm.nam", "name"),
        ({"uplink": {"kinds": "ideal"}}, "uplink.kinds", "kind"),
        ({"channel": {"snr": 3}}, "channel.snr", "snr_db"),
        ({"power": {"alphau": 3}}, "power.alphau", "alpha_u"),
    ],
)
def test_unknown_keys_are_named_with_the_nearest(sections: dict[str, Any], given_key: str, nearest: str) -> None:
    refused(sections, f"unknown key '{given_key}'", nearest)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_refuses_a_stranger_and_lists_or_guesses(section: str) -> None:
    message = refused({section: {"zzzzz": 1}}, f"unknown key '{section}.zzzzz'", "valid here: ")
    # The names offered are the section's own.
    offered = message.split("valid here: ")[1].split(", ")
    assert offered == list(type(getattr(RunConfig(), section)).model_fields)


def test_all_problems_are_told_at_once() -> None:
    refused({"local": {"epochs": 0, "typo": 1}, "seed": -1}, "local.epochs", "local.typo", "seed")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("local", "epochs", "twenty"),
        ("local", "epochs", 2.5),
        ("local", "epochs", True),
        ("local", "epochs", 0),
        ("local", "epochs", -1),
        ("local", "batch_size", 0),
        ("local", "lr", 0.0),
        ("local", "lr", -0.1),
        ("local", "lr", float("nan")),
        ("local", "lr", float("inf")),
        ("local", "lr", "0.1"),
        ("local", "momentum", 1.0),
        ("local", "momentum", -0.1),
        ("local", "momentum", float("nan")),
        ("local", "workers", -1),
        ("local", "mode", "sdg"),
        ("local", "mode", 3),
        ("data", "set", "mnist"),
        ("data", "test_fraction", 0.0),
        ("data", "test_fraction", 1.0),
        ("data", "test_fraction", float("nan")),
        ("data", "train_samples", -1),
        ("data", "path", 3),
        ("data", "synthetic_iid", 1),
        ("data", "synthetic_alpha", -1.0),
        ("data", "synthetic_beta", float("nan")),
        ("partition", "clients", 0),
        ("partition", "clients", 10**12),
        ("partition", "classes_per_client", 0),
        ("partition", "size_spread", -0.5),
        ("partition", "size_spread", float("inf")),
        ("partition", "kind", "idd"),
        ("model", "hidden", 0),
        ("model", "arguments", 3),
        ("model", "arguments", {"x": float("inf")}),
        ("model", "arguments", {"x": [float("nan")]}),
        ("model", "arguments", {"x": None}),
        ("model", "arguments", {"x": date(2024, 1, 1)}),
        ("model", "arguments", {"x": object()}),
        ("algorithm", "mu", 0.0),
        ("algorithm", "mu", float("nan")),
        ("algorithm", "schedule", 3),
        ("algorithm", "schedule", [[1, 2, 3]]),
        ("algorithm", "schedule", [["a", 0.1]]),
        ("algorithm", "schedule", [[1.5, 0.1]]),
        ("uplink", "uplinks", 0),
        ("uplink", "stop_after", -1),
        ("uplink", "kind", "telepathy"),
        ("channel", "snr_db", float("nan")),
        ("channel", "snr_db", 1e4),
        ("channel", "snr_db", -1e4),
        ("channel", "noise_std_real", 0.0),
        ("channel", "noise_std_real", -1.0),
        ("channel", "noise_std_real", 1e200),
        ("channel", "noise_std_real", 1e-200),
        ("channel", "static_gain", 0.0),
        ("channel", "fading", "rician"),
        ("power", "alpha_u", 0.0),
        ("power", "alpha_u", -3.0),
        ("power", "alpha_u", "smallest"),
        ("power", "alpha_u", float("inf")),
        ("power", "channel_epsilon", -1.0),
        ("power", "channel_epsilon", 1e-300),
        ("power", "backoff", "worst"),
        ("power", "aggregate", "scaled"),
        ("jammer", "role", "helper"),
        ("jammer", "factor", 0.99),
        ("jammer", "factor", float("nan")),
        ("jammer", "gain_db", float("inf")),
        ("jammer", "gain_db", 1e5),
        ("jammer", "availability", 0.0),
        ("jammer", "availability", 1.01),
        ("jammer", "snr_limit_db", "all"),
        ("privacy", "clip_norm", 0.0),
        ("privacy", "clip_norm", float("inf")),
        ("privacy", "clip_norm", 1e300),
        ("privacy", "epsilon", 0.0),
        ("privacy", "epsilon", -1.0),
        ("privacy", "epsilon", float("nan")),
        ("privacy", "epsilon", 1e-300),
        ("privacy", "epsilon", 1e300),
        ("privacy", "delta", 0.0),
        ("privacy", "delta", 1.0),
        ("privacy", "delta", -1e-5),
        ("privacy", "delta", 2.0),
        ("privacy", "delta", float("nan")),
        ("privacy", "label", "records"),
        ("privacy", "neighbours", "add-one"),
        ("privacy", "accountant", "moments"),
        ("privacy", "budget_epsilon", -1.0),
    ],
)
def test_wrong_types_and_values_out_of_range_name_the_key(section: str, key: str, value: object) -> None:
    refused({section: {key: value}}, f"{section}.{key}")


@pytest.mark.parametrize(
    ("value", "nearest"), [("sdg", "sgd"), ("recrod", "record")], ids=["swapped letters", "swapped again"]
)
def test_a_mistyped_choice_gets_the_nearest(value: str, nearest: str) -> None:
    refused({"local": {"mode": value}}, f"'{value}' is not one of sgd, record", f"did you mean '{nearest}'?")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-x", "a b", "a\nb", 3])
def test_names_that_could_leave_the_folder_of_runs_are_refused(name: object) -> None:
    refused({"name": name}, "name")


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_must_be_a_table(section: str) -> None:
    refused({section: 3}, f"{section}: expected a section with keys of its own (given 3)")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy": {"epsilon": float("nan")}}, "privacy.epsilon: expected a finite number (given nan)"),
        ({"tracking": {"to": "mlflow"}}, 'tracking.to: expected a list, such as ["mlflow"]'),
        ({"tracking": {"to": ["mlfow"]}}, "'mlfow' is not one of mlflow, tensorboard, wandb, nor an import path"),
        ({"data": {"set": "CIFAR-10"}}, "by its import path: 'torchvision:CIFAR10', from the folder data.path"),
        ({"algorithm": {"name": "fed_adam"}}, "by its import path: 'fl.learning.server.adaptive:FedAdam'"),
    ],
    ids=["nan", "no list", "a tracker", "a data set", "an algorithm"],
)
def test_what_is_wanted_is_said(sections: dict[str, Any], message: str) -> None:
    assert refused(sections, message).count("given") <= 1


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy": {"label": "record"}}, "needs local.mode = 'record'"),
        ({"partition": {"kind": "natural"}}, "needs data with clients"),
        ({"channel": {"fading": "file"}}, "needs channel.path"),
        ({"jammer": {"role": "rotating"}, "partition": {"clients": 1}}, "at least 2 clients"),
        ({"jammer": {"role": "dedicated", "availability": 0.5}}, "jammer.availability"),
        ({"jammer": {"availability": 0.5}}, "jammer.availability"),
        ({"privacy": {"accountant": "pld"}}, "must be 'paper' or 'exact'"),
        ({"privacy": {"accountant": "rdp"}}, "must be 'paper' or 'exact'"),
        ({"uplink": {"uplinks": 5, "stop_after": 6}}, "larger than uplink.uplinks"),
    ],
)
def test_impossible_combinations(sections: dict[str, Any], message: str) -> None:
    refused(sections, message)


@pytest.mark.parametrize(
    ("sections", "label"),
    [
        ({}, Label.PAPER_CLAIM),
        ({"local": {"mode": "record"}}, Label.RECORD),
        ({"local": {"mode": "record"}, "privacy": {"label": "client"}}, Label.CLIENT),
        ({"privacy": {"label": "client"}}, Label.CLIENT),
        ({"local": {"mode": "record"}, "privacy": {"label": "paper-claim"}}, Label.PAPER_CLAIM),
    ],
)
def test_the_label_that_is_claimed(sections: dict[str, Any], label: Label) -> None:
    assert parse_config(sections).label is label


@pytest.mark.parametrize(
    ("override", "read", "expected"),
    [
        ("local.epochs=5", lambda c: c.local.epochs, 5),
        ("local.lr=1e-2", lambda c: c.local.lr, 0.01),
        ("local.lr=1", lambda c: c.local.lr, 1.0),
        (" local . lr = 0.5 ", lambda c: c.local.lr, 0.5),
        ("seed=0x10", lambda c: c.seed, 16),
        ("seed=1_000", lambda c: c.seed, 1000),
        ("algorithm.name=fedavg", lambda c: c.algorithm.name.value, "fedavg"),
        ("algorithm.name='fedavg'", lambda c: c.algorithm.name.value, "fedavg"),
        ('algorithm.name="fedavg"', lambda c: c.algorithm.name.value, "fedavg"),
        ("data.synthetic_iid=false", lambda c: c.data.synthetic_iid, False),
        ("data.path=/some/where with spaces#1", lambda c: c.data.path, "/some/where with spaces#1"),
        ("data.path=a=b", lambda c: c.data.path, "a=b"),
        ("data.path=", lambda c: c.data.path, ""),
        ("description=5 apples", lambda c: c.description, "5 apples"),
        ("power.alpha_u=largest", lambda c: c.power.alpha_u, "largest"),
        ("power.alpha_u=12.5", lambda c: c.power.alpha_u, 12.5),
        ("jammer.snr_limit_db=none", lambda c: c.jammer.snr_limit_db, "none"),
        ("jammer.snr_limit_db=-3", lambda c: c.jammer.snr_limit_db, -3.0),
        ("algorithm.schedule=[[3, 0.5], [9, 2]]", lambda c: c.algorithm.schedule, [(3, 0.5), (9, 2.0)]),
        ("model.arguments.width=3", lambda c: c.model.arguments, {"width": 3}),
        ("model.arguments={width = 3, deep.er = [1, 2]}", lambda c: c.model.arguments["deep"], {"er": [1, 2]}),
        ("model.arguments.a.b=x", lambda c: c.model.arguments, {"a": {"b": "x"}}),
    ],
)
def test_overrides(override: str, read: Callable[[RunConfig], Any], expected: object) -> None:
    assert read(load_config("quickstart", [override])) == expected


def test_the_last_override_wins_and_others_stay() -> None:
    config = load_config("quickstart", ["seed=2", "local.epochs=3", "seed=4"])
    assert (config.seed, config.local.epochs, config.privacy.epsilon) == (4, 3, 5.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("local.epochs", "expected a.b=value"),
        ("=5", "expected a.b=value"),
        ("local.=5", "expected a.b=value"),
        (".epochs=5", "expected a.b=value"),
        ("local..epochs=5", "expected a.b=value"),
        ("", "expected a.b=value"),
        ("seed.x=5", "seed"),
        ("name.x=5", "'name' is a value, not a section"),
        ("data.set.x=5", "'set' is a value, not a section"),
        ("local.epochs=five", "local.epochs"),
        ("local.epochs=", "local.epochs"),
        ("local.epoch=5", "did you mean 'epochs'?"),
        ("local=5", "local"),
        ("seed=2024-01-01", "seed"),
        ("local.lr=nan", "local.lr"),
        ("local.epochs=[1]", "local.epochs"),
    ],
)
def test_malformed_overrides(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = ", "cannot be read"),
        (b"[local\n", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"seed = 1\nseed = 2\n", "cannot be read"),
        (b"sede = 1\n", "did you mean 'seed'?"),
    ],
)
def test_files_that_are_no_configs(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_such_config_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config 'quickstrat'.*did you mean 'quickstart'\?"):
        load_config("quickstrat")
    with pytest.raises(ConfigError, match="no config"):
        load_config(str(tmp_path))


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    assert load_config(str(tmp_path / "empty.toml")) == RunConfig()


ODD: dict[str, Any] = {
    "name": "odd.name-1_2",
    "description": 'two lines\nand "quotes" \\ and ε',
    "seed": 2**70,
    "data": {"set": "synthetic", "synthetic_iid": False, "path": "C:\\x\ty"},
    "partition": {"kind": "natural", "clients": 30},
    "model": {"module": "a.b:C", "arguments": {"width": 3, "names": ["x", "y"], "deep": {"er": 0.1}}},
    "algorithm": {"schedule": [[1, 1e-3], [2, 3.0]]},
    "local": {"mode": "record", "lr": 1e-7},
    "uplink": {"kind": "ideal", "uplinks": 7, "stop_after": 3},
    "power": {"alpha_u": 0.1 + 0.2, "channel_epsilon": 3},
    "jammer": {"snr_limit_db": -7.5},
    "privacy": {"label": "client", "delta": 1e-300},
}


@pytest.mark.parametrize("sections", [{}, ODD], ids=["defaults", "odd values"])
def test_a_resolved_config_reads_back_equal(tmp_path: Path, sections: dict[str, Any]) -> None:
    config = parse_config(sections)
    path = tmp_path / "resolved.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    back = load_config(str(path))
    assert back == config
    assert back.digest() == config.digest()
    # Every key of every section is there.
    held = tomllib.loads(config.to_toml())
    for section in SECTIONS:
        assert set(held[section]) == set(type(getattr(config, section)).model_fields)


@pytest.mark.parametrize("name", list(shipped_configs()))
def test_shipped_configs_survive_the_round_trip(name: str) -> None:
    config = load_config(name)
    assert parse_config(tomllib.loads(config.to_toml())) == config
    json.dumps(config.model_dump(mode="json"), allow_nan=False)


FLOATS = {
    "local.lr": (1e-12, 1e9),
    "privacy.delta": (1e-300, 0.999),
    "privacy.epsilon": (1e-6, 1e9),
    "channel.snr_db": (-120.0, 120.0),
    "channel.noise_std_real": (1e-9, 1e9),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_numbers_survive_the_round_trip(data: st.DataObject) -> None:
    sections: dict[str, dict[str, float]] = {}
    for place, (low, high) in FLOATS.items():
        section, key = place.split(".")
        sections.setdefault(section, {})[key] = data.draw(st.floats(low, high), label=place)
    config = parse_config(sections)
    assert parse_config(tomllib.loads(config.to_toml())) == config


def _leaves(config: RunConfig) -> list[tuple[str, str]]:
    return [(section, key) for section in SECTIONS for key in type(getattr(config, section)).model_fields]


OTHER: dict[str, Any] = {
    "data.set": "emnist",
    "data.path": "elsewhere",
    "partition.kind": "classes",
    "model.module": "a:B",
    "local.loss": "a:b",
    "local.loss_arguments": {"x": 1},
    "local.optimiser": "a:B",
    "local.optimiser_arguments": {"x": 1},
    "model.arguments": {"x": 1},
    "algorithm.name": "fedavg",
    "algorithm.schedule": [[1, 1.0]],
    "local.mode": "record",
    "uplink.kind": "ideal",
    "channel.fading": "static",
    "channel.path": "gains.csv",
    "radio.confidence": 0.9999,
    "power.alpha_u": "largest",
    "power.backoff": "actual",
    "power.aggregate": "literal",
    "power.control": "liu-simeone",
    "power.baseline_accountant": "published",
    "jammer.role": "external",
    "jammer.factor_on": "variance",
    "jammer.snr_limit_db": 3.0,
    "privacy.label": "client",
    "privacy.neighbours": "replace-one",
    "privacy.accountant": "exact",
    "data.synthetic_iid": False,
    "radio.diagnosis": False,
    "data.test_fraction": 0.3,
    "local.momentum": 0.25,
    "privacy.delta": 1e-6,
    "tracking.to": ["tensorboard"],
    "tracking.metrics": "all",
}


def _another(held: object) -> list[object]:
    """Values of the same type that differ; the first that is allowed will do."""
    if isinstance(held, str):
        return [held + "x"]
    return [held * 0.9, 1.0, held + 1.0] if isinstance(held, float) and held else [held + 1, 1e-3]  # type: ignore[operator]


def _changed(section: str, key: str, values: list[object]) -> RunConfig:
    for value in values:
        try:
            changed = parse_config({section: {key: value}})
        except ConfigError:
            continue
        if changed != RunConfig():
            return changed
    raise AssertionError(f"no other value of {section}.{key} is allowed among {values}")


def test_the_digest_ignores_workers_description_captures_and_where_a_calibration_lies() -> None:
    plain = RunConfig()
    for section, key in _leaves(plain):
        place = f"{section}.{key}"
        # They go with other values of other keys only, see below.
        depending = {"jammer.availability", "radio.calibration", "radio.record", "radio.record_sent", "audit.canaries"}
        depending |= {"data.arguments", "algorithm.arguments", "model.input"}
        if place not in depending:
            values = [OTHER[place]] if place in OTHER else _another(getattr(getattr(plain, section), key))
            uncounted_here = place == "local.workers" or section == "tracking"
            assert (_changed(section, key, values).digest() == plain.digest()) == uncounted_here, place
    external = parse_config({"jammer": {"role": "external"}})
    assert parse_config({"jammer": {"role": "external", "availability": 0.5}}).digest() != external.digest()
    record: dict[str, Any] = {"local": {"mode": "record"}}
    assert parse_config({**record, "audit": {"canaries": 5}}).digest() != parse_config(record).digest()
    radio: dict[str, Any] = {"uplink": {"kind": "radio"}}
    for uncounted in ({"calibration": "x"}, {"record": "last"}, {"record": "all", "record_sent": True}):
        assert parse_config({**radio, "radio": uncounted}).digest() == parse_config(radio).digest()
    assert parse_config({"description": "other"}).digest() == plain.digest()
    assert parse_config({"name": "other"}).digest() != plain.digest()
    assert parse_config({"seed": 2}).digest() != plain.digest()


def test_whole_numbers_and_floats_are_the_same_config() -> None:
    assert parse_config({"local": {"lr": 1}}).digest() == parse_config({"local": {"lr": 1.0}}).digest()
    zero, zero_point = ({"power": {"channel_epsilon": value}} for value in (0, 0.0))
    assert parse_config(zero).digest() == parse_config(zero_point).digest() == RunConfig().digest()


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().seed = 3  # type: ignore[misc]


def test_the_last_uplink() -> None:
    assert parse_config({"uplink": {"uplinks": 9}}).last_uplink == 9
    assert parse_config({"uplink": {"uplinks": 9, "stop_after": 4}}).last_uplink == 4
