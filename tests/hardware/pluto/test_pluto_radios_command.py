"""`airdp radios`: what is there, what it can do, and what to check where nothing is."""

from collections.abc import Callable

import pytest

import hardware.pluto.discovery
from hardware.radio.errors import HardwareError
from hardware.virtual.iiod.emulator import Emulator
from tests.conftest import Outcome
from tests.hardware.plutos import lab_of

Command = Callable[..., Outcome]


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.pluto.discovery, "_addresses", list)


def test_an_address_is_asked(command: Command) -> None:
    with Emulator(lab_of(), seed=1) as emulator:
        uris = emulator.uris
        said = command("radios", "--json", "--uri", uris["sender"], "--uri", uris["receiver"])
        shown = command("radios", "--uri", uris["sender"])
    assert said.code == shown.code == 0
    sender, receiver = said.json["radios"]
    assert sender["uris"] == [uris["sender"]]
    assert (sender["serial"], receiver["serial"]) == ("airdp-virtual-sender", "airdp-virtual-receiver")
    assert sender["virtual"] == "lockstep"
    assert sender["temperature_c"] == pytest.approx(36.5)
    assert sender["capabilities"]["tx_gain_db"] == [-89.75, 0.0]
    assert sender["capabilities"]["bandwidth_hz"] == [200e3, 40e6]
    for text in (uris["sender"], "airdp-virtual-sender", "-89.75 to 0 dB transmitting", "emulated"):
        assert text in shown.out


def test_an_address_where_nobody_is(command: Command) -> None:
    said = command("radios", "--uri", "ip:127.3.2.1")
    assert said.code == 2
    assert "cannot be reached at ip:127.3.2.1" in said.err


def test_an_address_that_no_radio_has(command: Command) -> None:
    said = command("radios", "--uri", "serial:/dev/ttyUSB0")
    assert said.code == 2
    assert "no radio has an address such as 'serial:/dev/ttyUSB0': expected ip:… (Pluto), usb:… (Pluto)" in said.err


def test_without_the_library_the_command_that_installs_it_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise HardwareError("a Pluto needs libiio: apt-get install libiio0")

    monkeypatch.setattr(hardware.pluto.discovery, "libraries", missing)
    said = command("radios")
    # An error where no other kind of radio can be looked for either.
    assert "apt-get install libiio0" in (said.err if said.code else said.out)
    assert said.code in (0, 2)


@pytest.mark.usefixtures("nothing")
def test_no_radio(command: Command) -> None:
    shown = command("radios")
    assert shown.code == 0
    for text in ("No Pluto was found", "cable", "udev", "libiio0", "ping 192.168.2.1"):
        assert text in shown.out
    assert command("radios", "--json").json == {"radios": [], "problems": []}


def test_one_radio_at_two_addresses_is_listed_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(lab_of(), seed=1) as emulator:
        uri = emulator.uris["sender"]
        same, gone = f"{uri}:30431", "ip:127.3.2.1"
        monkeypatch.setattr(hardware.pluto.discovery, "_addresses", lambda: [uri, gone, same])
        said = command("radios", "--json")
    assert [radio["uris"] for radio in said.json["radios"]] == [[uri, same]]
    assert len(said.json["problems"]) == 1
    assert gone in said.json["problems"][0]


def test_looking_for_radios_finds_what_answers_like_one() -> None:
    """A whole scan, in its own process: there may be radios, but it ends and says nothing but addresses."""
    with Emulator(lab_of(), seed=1) as emulator:
        host = emulator.uris["sender"].removeprefix("ip:")
        assert hardware.pluto.discovery._answers(host)
    assert not hardware.pluto.discovery._answers(host)
    assert all(address.startswith(("ip:", "usb:")) for address in hardware.pluto.discovery._addresses())
