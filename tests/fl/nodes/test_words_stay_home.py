"""What goes wrong with a client's data is said in words that do not depend on them; its own log has the others."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import DataError, ModelError
from fl.nodes.apart.client import ClientSide
from fl.nodes.apart.orders import Enrol, Order, Train
from fl.privacy.sensitivity import Clipping
from fl.processes.node import ClientProgram
from fl.processes.settings import NodeSettings
from fl.run.config import parse_config
from hardware.lab.model import Role
from hardware.radio.errors import HardwareError, LateError, TxClippingError, TxSamplesError
from tests.fl.nodes.apart.site import lab_of, sections


class Sending:
    """In place of a client's node: fails as it is told to when it sends."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def answer(self, message: Any) -> Any:
        raise self.error


def order(message: Any = None) -> Order:
    return Order("run", "session", 3, 0, 1, "", message)


def side(tmp_path: Path, train: Callable[..., Any]) -> ClientSide:
    return ClientSide(lab_of(2, tmp_path), train, ledger=None, clipping=Clipping.whole(1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [ModelError("loss of record 17 is NaN"), RuntimeError("label 12 is out of bounds"), KeyError(5)], ids=str
)
def test_why_training_failed(tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise error

    client = side(tmp_path, fail)
    client.node = Sending(error)  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR, "airdp"), pytest.raises(ModelError) as said:
        client.carry_out(order(Train(3, np.zeros(1, np.float32))))
    assert str(said.value) == "this client could not train for uplink 3; its own log says why"
    assert str(error) in caplog.text


@pytest.mark.parametrize(
    "error", [TxClippingError("41 samples are beyond full scale"), TxSamplesError("NaN"), ValueError("0.7")], ids=str
)
def test_why_samples_could_not_be_sent(tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the converter holds them depends on the update: class and number of samples would say so."""
    client = side(tmp_path, lambda *_: None)
    client.node = Sending(error)  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR, "airdp"), pytest.raises(HardwareError) as said:
        client._sent(order())
    assert (type(said.value), str(said.value)) == (
        HardwareError,
        "this client could not send its update of uplink 3; its own log says why",
    )
    assert str(error) in caplog.text


def test_what_is_the_radios_is_said(tmp_path: Path) -> None:
    client = side(tmp_path, lambda *_: None)
    client.node = Sending(LateError("it is already sample 7"))  # type: ignore[assignment]
    with pytest.raises(LateError, match="sample 7"):
        client._sent(order())


@pytest.mark.parametrize("kind", ["no file", "labels", "values"])
def test_what_is_wrong_with_data(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    x, y = np.zeros((4, 64), np.float32), np.array([0, 1, 2, 3])
    if kind != "no file":
        y[0] = 77 if kind == "labels" else 0
        x[0, 0] = np.nan if kind == "values" else 0.0
        np.savez(tmp_path / "secret-ward-7.npz", x=x, y=y)
    lab = lab_of(2, tmp_path)
    settings = NodeSettings(
        lab,
        "client-1",
        Role.CLIENT,
        "tcp://127.0.0.1:1",
        tmp_path,
        tmp_path,
        data=str(tmp_path / "secret-ward-7.npz"),
    )
    chosen = sections()
    config = parse_config({**chosen, "radio": {**chosen["radio"], "lab": str(tmp_path / "plain.toml")}})
    program = ClientProgram(settings, None)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "airdp"), pytest.raises(DataError) as said:
        program.enrol(Enrol(config.to_toml()))
    assert str(said.value) == "the data of 'client-1' cannot be used; its own log says why"
    assert "secret-ward-7" in caplog.text
