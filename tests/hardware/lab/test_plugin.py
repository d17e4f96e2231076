"""A new backend is one folder and one registration: nothing of airdp is changed for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from hardware.lab.file import find_lab, parse_lab
from hardware.radio.errors import LabFileError, RxOverflowError, TxUnderflowError
from tests.conftest import Outcome
from tests.fl.nodes.small_runs import small_run
from tests.hardware.lab.plugins import install_cable, on_the_path
from tests.hardware.pair_lab import pair_lab
from tests.hardware.radio_contract import Pair, RadioContract, fail_once


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_cable(tmp_path_factory.mktemp("site-packages"))


@pytest.fixture
def plugin(installed: Path) -> Iterator[None]:
    with on_the_path(installed):
        yield


@pytest.mark.usefixtures("plugin")
class TestContract(RadioContract):
    @pytest.fixture
    def pair(self, plugin: None) -> Iterator[Pair]:
        lab = pair_lab({"backend": "cable"}, {}, cable={"noise_var_complex": 1e-6})
        with ExitStack() as stack:
            radios = lab.backend.connect(lab, 1, stack).radios
            sender, receiver = radios["sender"], radios["receiver"]

            def overflow() -> None:
                fail_once(receiver, "_listen", RxOverflowError("lost"))

            def underflow() -> None:
                fail_once(sender, "_send", TxUnderflowError("starved"))

            yield Pair(sender, receiver, lab.ps.settings, 0, 1e-3, overflow, underflow)


def lab_tables(**cable: Any) -> dict[str, Any]:
    tables = find_lab("loopback").to_tables()
    tables["lab"].update(name="cables", backend="cable")
    del tables["medium"]
    return tables | {"cable": cable}


def test_a_run_on_it(installed: Path, tmp_path: Path, airdp: Callable[..., Outcome]) -> None:
    (tmp_path / "lab.toml").write_text(tomli_w.dumps(lab_tables(attenuation_db=6.0)))
    config = tmp_path / "config.toml"
    config.write_text(tomli_w.dumps(small_run("lab.toml", clients=5, uplinks=3)))
    done = airdp("run", config, "--out", "own", "--json", path=str(installed))
    assert done.code == 0, done.err
    assert done.json["uplinks"] == 3
    # Of the lab file alone; and a lab that is made for another backend, by the option.
    config.write_text(tomli_w.dumps(small_run("loopback", clients=5, uplinks=3)))
    done = airdp("run", config, "--backend", "cable", "--out", "option", "--json", path=str(installed))
    assert done.code == 0, done.err
    missing = airdp("run", config, "--backend", "cable", "--out", "missing", "--json")
    assert missing.code == 2
    assert "backend 'cable' is not one of" in missing.err


@pytest.mark.usefixtures("plugin")
class TestSection:
    def test_it_is_read_and_written(self) -> None:
        lab = parse_lab(lab_tables(attenuation_db=6.0))
        assert lab.to_tables()["cable"] == {"attenuation_db": 6.0, "noise_var_complex": 1e-5}
        assert parse_lab(lab.to_tables()) == lab

    def test_a_mistake_is_refused_on_any_backend(self) -> None:
        tables = lab_tables(atenuation_db=6.0)
        for backend in ("cable", "loopback"):
            tables["lab"]["backend"] = backend
            with pytest.raises(
                LabFileError, match=r"unknown key 'cable\.atenuation_db'; did you mean 'attenuation_db'"
            ):
                parse_lab(tables)

    def test_its_name_is_known_where_it_is_misspelt(self) -> None:
        tables = lab_tables()
        tables["cabel"] = tables.pop("cable")
        with pytest.raises(LabFileError, match=r"unknown key 'cabel'; did you mean 'cable'\?"):
            parse_lab(tables)

    def test_capabilities_are_its_own(self) -> None:
        tables = lab_tables()
        tables["lab"]["rx_gain_db"] = -1.0
        for radio in tables["radio"]:
            radio["rx_gain_db"] = -1.0
        with pytest.raises(LabFileError, match=r"rx_gain_db is -1: this radio does 0 to 60 dB \(0 dB is one volt\)"):
            parse_lab(tables)


@pytest.mark.usefixtures("plugin")
def test_the_doctor_looks_for_what_it_needs(command: Callable[..., Outcome]) -> None:
    findings = {finding["name"]: finding for finding in command("doctor", "--json").json["findings"]}
    assert findings["cable_radios"]["needed_for"] == "cables"
