"""The served air keeps the contract, gives the loopback's samples, and stands what strangers say to it."""

from collections.abc import Iterator
from dataclasses import replace

import msgpack
import numpy as np
import pytest
import zmq

from hardware.lab.file import find_lab, parse_lab
from hardware.lab.opened import open_lab, open_radio
from hardware.radio.errors import HardwareError, LateError, RadioTimeoutError, TxUnderflowError
from hardware.virtual.served.radio import AirPort, ServedRadio
from hardware.virtual.served.server import ServedAir
from tests.hardware.radio_contract import Pair, RadioContract, fail_once, waveform

HISTORY = 1 << 22


@pytest.fixture
def served() -> Iterator[ServedAir]:
    tables = find_lab("loopback").to_tables()
    tables["medium"] |= {"fading": "static", "noise_var_complex": 1e-6}
    with ServedAir(parse_lab(tables), seed=1) as air:
        yield air


def radio(air: ServedAir, name: str) -> ServedRadio:
    lab = find_lab("loopback")
    limits = replace(lab.limits, max_tx_gain_db=-0.25)
    return ServedRadio(name, air.uris[name], lab.sample_rate_hz, limits, timeout_s=30.0)


class TestServed(RadioContract):
    @pytest.fixture
    def pair(self, served: ServedAir) -> Iterator[Pair]:
        settings = replace(find_lab("loopback").ps.settings, tx_gain_db=-0.25)
        with radio(served, "client-1") as sender, radio(served, "ps") as receiver:

            def overflow() -> None:
                receiver.port.call("advance", sample=receiver.now() + HISTORY + 10)

            def underflow() -> None:
                fail_once(served._medium, "send", TxUnderflowError("starved"))

            yield Pair(sender, receiver, settings, 8, 2e-2, overflow, underflow)


def test_the_samples_are_those_of_the_loopback_bit_for_bit() -> None:
    heard = []
    for backend in ("loopback", "loopback-served"):
        with open_lab(find_lab("loopback", backend), seed=3) as lab:
            lab.new_block(5)
            for number, client in enumerate(lab.clients):
                client.transmit(waveform(20_000, seed=number), 3000)
            heard.append(lab.ps.receive(30_000, 0).samples.tobytes())
    assert heard[0] == heard[1]


def test_radios_are_opened_one_by_one(served: ServedAir) -> None:
    plain = find_lab("loopback", "loopback-served")
    lab = replace(plain, radios=tuple(replace(one, address=served.uris[one.name]) for one in plain.radios))
    with open_radio(lab, "client-2") as sending, open_radio(lab, "ps") as receiving:
        sending.radios["client-2"].transmit(waveform(1000), 100)
        assert np.abs(receiving.ps.receive(2000, 0).samples).max() > 0.01
        assert list(sending.radios) == ["client-2"]


def test_a_radio_without_address_and_a_backend_for_one_process_are_refused() -> None:
    with (
        pytest.raises(HardwareError, match="has no address"),
        open_radio(find_lab("loopback", "loopback-served"), "ps"),
    ):
        pass
    with pytest.raises(HardwareError, match="one by one"), open_radio(find_lab("loopback"), "ps"):
        pass


def test_an_air_that_has_gone_is_named(served: ServedAir) -> None:
    address = served.uris["ps"].replace("/air#", "/nobody#")
    with pytest.raises(RadioTimeoutError, match="is its process still there"):
        ServedRadio("ps", address, 5e6, find_lab("loopback").limits, timeout_s=0.3)


@pytest.mark.parametrize("at", ["send_multipart", "recv_multipart"])
def test_a_radio_can_be_silenced_after_an_interrupt(
    served: ServedAir, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while a request is on its way, or its answer: what parks the radio then is another request."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with radio(served, "client-1") as sender:
        sender.configure(replace(find_lab("loopback").ps.settings, tx_gain_db=-0.25))
        with monkeypatch.context() as patch:
            patch.setattr(sender.port._socket, at, interrupted)
            with pytest.raises(KeyboardInterrupt):
                sender.now()
        sender.park()
        assert sender.parked
        assert served._medium.settings("client-1").tx_gain_db == sender.capabilities.tx_gain_db[0]


def test_errors_of_the_air_are_raised_as_what_they_are(served: ServedAir) -> None:
    with radio(served, "ps") as receiver:
        receiver.configure(replace(find_lab("loopback").ps.settings, tx_gain_db=-0.25))
        receiver.receive(1000, 0)
        with pytest.raises(LateError, match="are gone"):
            receiver.receive(1000, 0)


def test_nonsense_is_answered_and_changes_nothing(served: ServedAir) -> None:
    rng = np.random.default_rng(3)
    port = AirPort(served.uris["ps"], 5.0)
    endpoint = served.uris["ps"].partition("#")[0]
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(endpoint)
        for number in range(1000):
            content = rng.bytes(int(rng.integers(0, 60)))
            if number % 3 == 0:
                said = {"call": "listen", "radio": "ps", "count": int(rng.integers(-5, 1 << 40)), "start_sample": "x"}
                content = msgpack.packb(said)
            stranger.send_multipart([b"", content])
            assert stranger.poll(5000)
            assert b"error" in stranger.recv_multipart()[1]
    assert port.call("now")[0] == {"now": 0}
    port.close()
