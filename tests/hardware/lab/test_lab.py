"""Lab files: what they open, and what they are refused for."""

import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.air.build import build_medium
from hardware.air.settings import medium_of
from hardware.lab.clock import ClockMode
from hardware.lab.file import load_lab, on_backend, parse_lab, shipped_labs
from hardware.lab.model import Connection, Lab, LabRadio, Role
from hardware.lab.opened import OpenLab, open_lab
from hardware.lab.traits import Traits
from hardware.loopback.backend import BACKEND
from hardware.loopback.radio import LoopbackRadio
from hardware.radio.errors import HardwareError, LabFileError
from hardware.radio.settings import Limits, RadioSettings
from phy.impairments import rotate
from tests.hardware.radio_contract import arrival, waveform
from tests.hardware.simulated import medium_in

LABS = Path(__file__).parents[1] / "labs"
Tables = dict[str, Any]


@pytest.fixture
def tables() -> Tables:
    return tomllib.loads((LABS / "harsh.toml").read_text(encoding="utf-8"))


class TestLoad:
    @pytest.mark.parametrize(
        ("name", "clock"),
        [("benign", ClockMode.SHARED), ("harsh", ClockMode.SHARED), ("free_clock", ClockMode.FREE_RUNNING)],
    )
    def test_labs_load(self, name: str, clock: ClockMode) -> None:
        lab = load_lab(LABS / f"{name}.toml")
        assert lab.clock_mode is clock
        assert lab.backend is BACKEND
        assert [radio.name for radio in lab.clients] == [f"client-{number}" for number in range(1, 6)]
        assert lab.ps.receives
        assert not lab.clients[0].receives
        assert lab.jammer is not None
        assert lab.sample_rate_hz == 5e6
        assert lab.limits == Limits((2.44e9, 2.46e9), 0.0, 40.0)
        assert lab.source.endswith(f"{name}.toml")

    def test_a_lab_is_frozen(self) -> None:
        lab = load_lab(LABS / "benign.toml")
        with pytest.raises(FrozenInstanceError):
            lab.name = "other"  # type: ignore[misc]

    def test_settings_of_the_lab_and_of_single_radios(self, tables: Tables) -> None:
        tables["lab"] |= {"bandwidth_hz": 3e6, "tx_gain_db": -3, "rx_gain_db": 5.0}
        tables["radio"][2] |= {"tx_gain_db": -20.0, "receives": True, "address": "ip:192.0.2.1"}
        lab = parse_lab(tables)
        assert lab.clients[4].settings == RadioSettings(5e6, 2.45e9, 2.45e9, 3e6, -3.0, 5.0)
        assert lab.jammer is not None
        assert lab.jammer.settings.tx_gain_db == -20.0
        assert lab.jammer.receives
        assert lab.jammer.address == "ip:192.0.2.1"

    def test_bandwidth_is_the_sample_rate_unless_given(self) -> None:
        assert load_lab(LABS / "benign.toml").ps.settings.bandwidth_hz == 5e6

    def test_a_lab_without_a_jammer(self, tables: Tables) -> None:
        tables["radio"].pop(2)
        lab = parse_lab(tables)
        assert lab.jammer is None
        with open_lab(lab, 1) as opened:
            assert opened.jammer is None
            assert len(opened.radios) == 6


def change(path: str, value: object) -> Callable[[Tables], None]:
    """Set the key at a dotted path; numbers are places in a list."""

    def apply(tables: Tables) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = tables
        for part in way:
            place = place[part] if isinstance(part, int) else place.setdefault(part, {})
        place[last] = value

    return apply


def remove(path: str) -> Callable[[Tables], None]:
    def apply(tables: Tables) -> None:
        section, key = path.split(".")
        del tables[section][key]

    return apply


@pytest.mark.parametrize("name", sorted(shipped_labs()))
def test_a_lab_survives_its_tables(name: str) -> None:
    lab = load_lab(shipped_labs()[name])
    assert parse_lab(lab.to_tables(), lab.source) == lab


class TestBadInput:
    @pytest.mark.parametrize(
        ("mistake", "message"),
        [
            (change("lab.sample_rat_hz", 1e6), r"unknown key 'lab\.sample_rat_hz'; did you mean 'sample_rate_hz'\?"),
            (change("limts", {}), r"unknown key 'limts'; did you mean 'limits'\?"),
            (change("limits.zzz", 1), r"unknown key 'limits\.zzz'; valid here: band_hz, max_tx_gain_db"),
            (change("radio.1.rolle", "client"), r"unknown key 'radio\.client\.rolle'; did you mean 'role'\?"),
            (change("medium.iq_imge_db", -35.0), r"unknown key 'medium\.iq_imge_db'; did you mean 'iq_image_db'\?"),
            (
                change("medium.radio.client-1.dellay_samples", 1.0),
                r"'medium\.radio\.client-1\.dellay_samples'; did you mean 'delay_samples'\?",
            ),
            (change("medium.radio.clint-1.gain_db", 1.0), r"no such radio; did you mean 'client-1'\?"),
            (remove("limits.band_hz"), r"key 'limits\.band_hz' is missing"),
            (remove("limits.max_tx_gain_db"), r"key 'limits\.max_tx_gain_db' is missing"),
            (remove("lab.tx_gain_db"), r"key 'lab\.tx_gain_db' is missing"),
            (
                change("lab.backend", "loopbak"),
                r"'loopbak' is not one of gnuradio, loopback, loopback-served, pluto, .*; did you mean 'loopback'\?",
            ),
            (
                change("lab.clock", "free"),
                r"lab\.clock: 'free' is not one of shared, free-running; did you mean 'free-r",
            ),
            (change("radio.1.role", "cliant"), r"radio\.client\.role: 'cliant' is not one of .*, observer; did"),
            (change("radio.1.role", "ps"), r"6 radios have the role 'ps' \(ps, client-1, .*: expected exactly 1"),
            (change("radio.0.role", "jammer"), "0 radios have the role 'ps': expected exactly 1"),
            (change("radio.1.role", "jammer"), "have the role 'client': expected at least 1"),
            (change("radio.2.count", 2), r"2 radios have the role 'jammer' \(jammer-1, jammer-2\): expected at most 1"),
            (change("radio.2.name", "ps"), "2 radios named 'ps'"),
            (change("radio.2.name", "client-3"), "2 radios named 'client-3'"),
            (change("radio.2.name", "a b"), r"radio\.a b\.name"),
            (change("radio.1.count", 0), r"radio\.client\.count.*\(given 0\)"),
            (change("radio.1.address", "ip:1"), "an address is for one radio"),
            (change("radio.0.receives", False), "it must receive"),
            (change("radio", []), "0 radios have the role 'ps'"),
            (change("lab.sample_rate_hz", 100e6), r"ps would occupy|sample_rate_hz is 1e\+08: this radio does"),
            (change("lab.sample_rate_hz", 1e5), r"sample_rate_hz is 100000: this radio does 520834 to 6\.144e\+07 S/s"),
            (change("lab.sample_rate_hz", "fast"), r"lab\.sample_rate_hz: .*number \(given 'fast'\)"),
            (change("lab.sample_rate_hz", True), r"lab\.sample_rate_hz"),
            (change("lab.sample_rate_hz", float("nan")), r"lab\.sample_rate_hz"),
            (change("lab.center_hz", 2.4425e9 - 1), r"ps would occupy 2439999999 to 2444999999 Hz: the lab allows"),
            (change("lab.center_hz", 900e6), r"limits\.band_hz"),
            (change("lab.bandwidth_hz", 30e6), r"limits\.band_hz"),
            (change("lab.tx_gain_db", 0.25), r"tx_gain_db is 0\.25 dB: the lab allows 0 dB \(limits\.max_tx_gain_db\)"),
            (change("radio.2.tx_gain_db", 3.0), r"jammer: tx_gain_db is 3 dB: the lab allows 0 dB"),
            (change("lab.rx_gain_db", 41.0), r"limits\.max_rx_gain_db"),
            (change("lab.rx_gain_db", -4.0), r"rx_gain_db is -4: this radio does -3 to 71 dB"),
            (change("lab.tx_gain_db", -90.0), r"tx_gain_db is -90: this radio does -89\.75 to 0 dB"),
            (change("limits.band_hz", [2.46e9, 2.44e9]), r"limits\.band_hz is .*the lower one first"),
            (change("limits.band_hz", [2.46e9]), r"limits\.band_hz"),
            (change("lab.timeout_s", 0.0), r"lab\.timeout_s"),
            (change("medium.noise_var_complex", -1.0), r"medium\.noise_var_complex.*\(given -1\.0\)"),
            (change("medium.max_delay_samples", -1.0), r"medium\.max_delay_samples"),
            (change("medium.radio.client-1.delay_samples", -1.0), r"medium\.radio\.client-1\.delay_samples"),
            (change("medium.max_clock_ppm", 1e6), r"medium\.max_clock_ppm"),
            (change("medium.clock_ppm", 1e6), r"medium: clock_ppm is 1000000\.0: expected"),
            (change("medium.iq_image_db", 3.0), r"medium: image_db is 3\.0; expected a negative number"),
            (change("medium.dac_bits", 1), r"medium: bits is 1; expected 2 to 24"),
            (change("medium.dac_bits", 12.0), r"medium\.dac_bits"),
            (change("medium.taps", []), r"medium: taps have delays"),
            (change("medium.taps", [[0, 0.0], [0, -3.0]]), r"medium: taps have delays of \[0, 0\]"),
            (change("medium.taps", [[0.5, 0.0]]), r"medium\.taps"),
            (change("medium.fading", "rayleih"), r"medium\.fading: .*did you mean 'rayleigh'\?"),
            (change("medium.radio.ps.pa_saturation", -1.0), r"medium\.radio\.ps: saturation is -1\.0"),
        ],
    )
    def test_is_refused_with_the_key_and_a_hint(
        self, tables: Tables, mistake: Callable[[Tables], None], message: str
    ) -> None:
        mistake(tables)
        with pytest.raises(LabFileError, match=message) as caught:
            parse_lab(tables, "my.toml")
        assert str(caught.value).startswith("my.toml: ")
        assert "\n" not in str(caught.value)

    def test_every_problem_is_named_at_once(self, tables: Tables) -> None:
        tables["lab"]["clok"] = "shared"
        tables["limits"]["max_tx_gain_db"] = "low"
        with pytest.raises(LabFileError, match=r"lab\.clok.*limits\.max_tx_gain_db|limits.*lab\.clok"):
            parse_lab(tables)

    def test_files_that_are_no_lab_files(self, tmp_path: Path) -> None:
        with pytest.raises(LabFileError, match="cannot be read"):
            load_lab(tmp_path / "missing.toml")
        broken = tmp_path / "broken.toml"
        broken.write_text("[lab\n")
        with pytest.raises(LabFileError, match="cannot be read"):
            load_lab(broken)
        broken.write_bytes(b"\xff\xfe")
        with pytest.raises(LabFileError, match="cannot be read"):
            load_lab(broken)

    def test_one_rate_for_all(self) -> None:
        slow = RadioSettings(1e6, 2.45e9, 2.45e9, 1e6, 0.0, 0.0)
        fast = RadioSettings(2e6, 2.45e9, 2.45e9, 1e6, 0.0, 0.0)
        radios = (LabRadio("ps", Role.PS, slow, True), LabRadio("c", Role.CLIENT, fast, False))
        with pytest.raises(LabFileError, match="'c' and 'ps' have different sample rates"):
            Lab("x", BACKEND, ClockMode.SHARED, radios, Limits((2.4e9, 2.5e9), 0.0))


class TestOpen:
    @pytest.mark.parametrize("name", ["benign", "harsh", "free_clock"])
    def test_all_transmitters_are_heard_by_the_ps(self, name: str) -> None:
        lab = load_lab(LABS / f"{name}.toml")
        with open_lab(lab, 3) as opened:
            medium = medium_in(opened)
            opened.new_block(1)
            for radio in (*opened.clients, opened.jammer):
                assert radio is not None
                assert radio.settings == lab.ps.settings
                burst = waveform(4000)
                start = opened.start_sample(100)
                radio.transmit(burst, start)
                received = opened.ps.receive(4100, start).checked(max_clipped_fraction=0.01).samples
                # Several kHz of carrier offset turn 4000 samples by some rounds: they would hide the burst.
                cycles_per_sample = medium.cfo_hz(radio.name, opened.ps.name) / lab.sample_rate_hz
                lag, amplitude = arrival(rotate(received, -cycles_per_sample, 0), burst)
                assert lag <= 28
                strongest = np.abs(medium.taps(radio.name, opened.ps.name)).max()
                assert amplitude > 0.5 * strongest

    def test_the_seed_draws_delays_and_crystals_within_their_bounds(self) -> None:
        harsh = load_lab(LABS / "harsh.toml")
        delays = np.array(
            [
                [build_medium(harsh, seed).link(radio.name, "ps").delay_samples for radio in harsh.clients]
                for seed in range(20)
            ]
        )
        assert np.unique(delays).size == 100
        assert delays.min() < 2
        assert 18 < delays.max() <= 20
        free = load_lab(LABS / "free_clock.toml")
        with open_lab(free, 1) as one, open_lab(free, 1) as same, open_lab(free, 2) as other:
            offsets = [
                [medium_in(opened).cfo_hz(radio.name, "ps") for radio in free.clients] for opened in (one, same, other)
            ]
        assert offsets[0] == offsets[1] != offsets[2]
        assert 0 < np.abs(offsets).max() <= 2 * 2450
        crystals = medium_of(free).model_copy(update={"max_clock_ppm": 3.0})
        wider = replace(free, sections={**free.sections, "medium": crystals})
        with open_lab(wider, 1) as opened:
            tripled = [medium_in(opened).cfo_hz(radio.name, "ps") for radio in free.clients]
        assert np.allclose(tripled, 3 * np.array(offsets[0]))

    def test_single_radios_can_differ(self, tables: Tables) -> None:
        tables["medium"] |= {"fading": "static", "taps": [[0, 0.0]], "gain_db": 0.0, "noise_var_complex": 0.5}
        tables["medium"]["radio"] = {
            "client-2": {"gain_db": -20.0, "phase_rad": np.pi / 2, "delay_samples": 3.5},
            "ps": {"noise_var_complex": 0.0, "dc_offset_dbfs": -60.0},
        }
        medium = build_medium(parse_lab(tables), 1)
        assert np.allclose(medium.taps("client-2", "ps"), [0.1j])
        assert np.allclose(medium.taps("client-1", "ps"), [1.0])
        assert medium.link("client-2", "ps").delay_samples == 3.5
        medium.tune("ps", parse_lab(tables).ps.settings)
        assert np.allclose(np.abs(medium.listen("ps", 100, 0)[0]), 1e-3, atol=5e-4)

    def test_clients_hear_only_where_the_lab_says_so(self, tables: Tables) -> None:
        with open_lab(parse_lab(tables), 1) as opened, pytest.raises(HardwareError, match="does not receive"):
            opened.clients[0].receive(10, 0)
        tables["radio"][1]["receives"] = True
        with open_lab(parse_lab(tables), 1) as opened:
            opened.ps.transmit(waveform(1000), 0)
            assert np.any(np.abs(opened.clients[0].receive(1000, 0).samples) > 0.05)

    def test_every_exit_parks_all(self) -> None:
        lab = load_lab(LABS / "benign.toml")
        seen: list[OpenLab] = []

        def fail() -> None:
            with open_lab(lab, 1) as opened:
                seen.append(opened)
                assert not any(radio.parked for radio in opened.radios.values())
                raise RuntimeError("boom")

        with pytest.raises(RuntimeError, match="boom"):
            fail()
        assert len(seen[0].radios) == 7
        assert all(radio.parked for radio in seen[0].radios.values())
        with open_lab(lab, 1) as opened:
            seen.append(opened)
        for radio in seen[1].radios.values():
            assert radio.parked
            with pytest.raises(HardwareError, match="closed"):
                radio.transmit(waveform(10), 10**6)

    def test_a_failure_while_opening_parks_what_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[LoopbackRadio] = []
        configure = LoopbackRadio.configure

        def failing(self: LoopbackRadio, settings: RadioSettings) -> RadioSettings:
            opened.append(self)
            if self.name == "client-3":
                raise HardwareError("client-3 does not answer")
            return configure(self, settings)

        monkeypatch.setattr(LoopbackRadio, "configure", failing)
        with (
            pytest.raises(HardwareError, match="does not answer"),
            open_lab(load_lab(LABS / "benign.toml"), 1),
        ):
            pytest.fail("the lab must not open")
        assert len(opened) == 4
        assert all(radio.parked and radio._closed for radio in opened)

    def test_the_same_file_on_another_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The [medium] section is still checked, but the other backend makes its own air."""
        connected: list[str] = []

        def connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
            connected.extend(radio.name for radio in lab.radios)
            return Connection(BACKEND.connect(lab, seed, stack).radios)

        def traits(lab: Lab) -> Traits:
            return replace(BACKEND.traits(lab), simulated_air=False, virtual_time=False)

        other = replace(BACKEND, name="other", connect=connect, traits=traits)
        lab = replace(load_lab(LABS / "harsh.toml"), backend=other)
        with open_lab(lab, 1) as opened:
            assert opened.air is None
            assert opened.time is None
            opened.new_block(5)
        assert connected == ["ps", *(f"client-{number}" for number in range(1, 6)), "jammer"]
        with pytest.raises(
            LabFileError, match=r"harsh\.toml: backend 'lopback' is not one of .*; did you mean 'loopback'"
        ):
            on_backend(lab, "lopback")

    @pytest.mark.parametrize(
        ("said", "message"),
        [
            ({"simulated_air": False}, "says that it has no simulated air, and has some"),
            ({"virtual_time": False}, "says that it has no virtual time, and has some"),
        ],
    )
    def test_a_backend_that_says_something_else_than_it_does(self, said: dict[str, bool], message: str) -> None:
        """Whose noise a jammer sends rests on what it says."""
        other = replace(BACKEND, traits=lambda lab: replace(BACKEND.traits(lab), **said))
        lab = replace(load_lab(LABS / "benign.toml"), backend=other)
        with pytest.raises(HardwareError, match=f"the backend 'loopback' {message}"), open_lab(lab, 1):
            pass

    @pytest.mark.parametrize(
        ("forgotten", "message"), [("jammer", "has opened no radio 'jammer'"), ("", "simulated air, and has none")]
    )
    def test_a_backend_that_forgets_a_radio_or_its_air(self, forgotten: str, message: str) -> None:
        def connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
            radios = BACKEND.connect(lab, seed, stack).radios
            return Connection({name: radio for name, radio in radios.items() if name != forgotten})

        lab = replace(load_lab(LABS / "benign.toml"), backend=replace(BACKEND, connect=connect))
        with pytest.raises(HardwareError, match=message), open_lab(lab, 1):
            pass
