"""`airdp inspect` on real small radio runs: what it says agrees with the folder, what it draws can be read."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import fl.run.figures
from fl.cli.experiments.inspect import summary
from fl.errors import RunFolderError
from fl.inspect.channels import channel_figure
from fl.inspect.figures import PICTURES, draw_round
from fl.inspect.timeline import timeline_figure
from fl.inspect.view import Snapshot, UplinkView, read_round, read_snapshot
from fl.learning.workforce import single_threaded_torch
from fl.privacy.ledger import read_ledger
from fl.privacy.statement import state_privacy
from fl.run import run
from fl.run.config import load_config
from fl.run.folder import RunFolder

Command = Callable[..., Any]
SMALL = [
    "model.hidden=4",
    "uplink.uplinks=2",
    "local.epochs=1",
    "data.train_samples=300",
    "radio.quiet_samples=4096",
]
KEYS = {
    "folder",
    "round",
    "nmse_db",
    "thermal_db",
    "above_thermal_db",
    "noise_db",
    "above_noise_db",
    "error_budget",
    "sigma",
    "sigma_receiver",
    "sigma_jammer",
    "alpha_u",
    "alpha_cj",
    "jamming_client",
    "backoff_max",
    "backed_off",
    "clipped_samples",
    "phase_error_rad",
    "max_phase_error_rad",
    "links",
    "epsilon",
    "label",
    "neighbours",
    "delta",
    "sigma_origin",
    "pictures",
}


def small_run(folder: Path, name: str, *overrides: str) -> Path:
    with pytest.MonkeyPatch.context() as patch, single_threaded_torch():
        patch.setattr(fl.run.figures, "draw_run", lambda folder: None)
        return run(load_config(name, [*SMALL, *overrides]), folder).out


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared clock, a jammer of its own. Not to be changed: see `own_run`."""
    return small_run(tmp_path_factory.mktemp("inspect") / "run", "loopback")


@pytest.fixture(scope="module")
def rotating_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Free clocks, clients that jam in turn."""
    return small_run(
        tmp_path_factory.mktemp("inspect") / "run",
        "loopback-free-clock",
        "jammer.role=rotating",
        "uplink.stop_after=1",
    )


@pytest.fixture
def own_run(shared_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(shared_run, tmp_path / "run"))


@pytest.fixture
def view(shared_run: Path) -> UplinkView:
    return read_round(RunFolder(shared_run))


def crowded(view: UplinkView, transmitters: int = 51) -> UplinkView:
    """The same uplink with many transmitters: links repeated, slots one after the other."""
    old = view.snapshot
    pick = np.arange(transmitters) % len(old.names)
    clients = np.arange(transmitters - 1) % old.backoffs.size
    starts = old.slot_starts[0] + old.slot_samples * np.arange(transmitters)
    power = np.full((int(starts[-1]) + old.slot_samples) // old.block_samples, 1e-3, np.float32)
    return replace(
        view,
        snapshot=replace(
            old,
            names=np.array([f"client-{number + 1}" for number in range(transmitters - 1)] + ["jammer"]),
            channels=old.channels[pick],
            channel_var=old.channel_var[pick],
            cfo_hz=old.cfo_hz[pick],
            cfo_std_hz=old.cfo_std_hz[pick],
            backoffs=old.backoffs[clients],
            phase_error_rad=old.phase_error_rad[clients],
            slot_starts=starts,
            sounding_power=power,
        ),
    )


def change_snapshot(folder: Path, **changes: Any) -> None:
    path = RunFolder(folder).snapshot_path(2)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file}
    arrays.update(changes)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def change_metrics(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    rows = RunFolder(folder).metrics()
    change(rows[-1])
    RunFolder(folder).metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def check_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = matplotlib.image.imread(path)[..., :3]
    assert min(pixels.shape[:2]) > 300
    # Neither blank nor a single line: much white, and a hundredth at least that is not.
    inked = float(np.mean(pixels.min(axis=-1) < 0.9))
    assert 0.01 < inked < 0.9


def test_draws_the_last_round(
    shared_run: Path, tmp_path: Path, command: Command, snapshot: Callable[[Path], dict[str, str]]
) -> None:
    before = snapshot(shared_run)
    outcome = command("inspect", shared_run, "--out", tmp_path / "pictures" / "deep")
    assert (outcome.code, outcome.err) == (0, "")
    for name in PICTURES:
        path = tmp_path / "pictures" / "deep" / f"{name}.png"
        check_picture(path)
        assert str(path) in outcome.out
    contents = {path.read_bytes() for path in (tmp_path / "pictures" / "deep").iterdir()}
    assert len(contents) == len(PICTURES) == 6
    for expected in ("loopback, round 2", "NMSE", "thermal floor", "sigma", "alpha_u", "clipped samples", "gate 0.1"):
        assert expected in outcome.out
    # An epsilon never without what it means.
    for expected in ("paper-claim", "zero-out neighbours", "delta 1e-05", "sigma measured"):
        assert expected in " ".join(outcome.out.replace("│", " ").split())
    assert snapshot(shared_run) == before


def test_pictures_go_into_the_run_by_default(own_run: Path, command: Command) -> None:
    said = command("inspect", own_run, "--round", 1, "--json").json
    assert said["round"] == 1
    folder = own_run / "figures" / "round-0001"
    assert {path.name for path in folder.iterdir()} == {f"{name}.png" for name in PICTURES}
    assert said["pictures"] == {name: str(folder / f"{name}.png") for name in PICTURES}


def test_what_json_says(shared_run: Path, tmp_path: Path, command: Command) -> None:
    said = command("inspect", shared_run, "--json", "--out", tmp_path).json
    assert set(said) >= KEYS
    row = RunFolder(shared_run).metrics()[-1]
    for key in ("sigma", "alpha_u", "alpha_cj", "backoff_max", "backed_off"):
        assert said[key] == pytest.approx(row[key], rel=1e-12)
    assert (said["nmse_db"], said["thermal_db"]) == (row["diagnostics"]["nmse_db"], row["diagnostics"]["thermal_db"])
    assert said["above_thermal_db"] == pytest.approx(said["nmse_db"] - said["thermal_db"])
    # The parts of the budget are the whole: relative energies add up to the NMSE.
    assert sum(said["error_budget"].values()) == pytest.approx(10 ** (said["nmse_db"] / 10))
    assert np.hypot(said["sigma_receiver"], said["sigma_jammer"]) == pytest.approx(said["sigma"])
    clients = [f"client-{number}" for number in range(1, 6)]
    assert list(said["phase_error_rad"]) == clients
    assert list(said["links"]) == [*clients, "jammer"]
    assert said["links"]["jammer"]["backoff"] is None
    assert all(0 < error < said["max_phase_error_rad"] for error in said["phase_error_rad"].values())
    # Shared clock, Rayleigh fading at -12 dB, delays of 4 samples at most: the lab file.
    for link in said["links"].values():
        assert link["cfo_hz"] == 0
        assert -40 < link["gain_db"] < 0
        assert -0.2 < link["delay_samples"] < 4.2


def test_epsilon_is_the_ledgers(shared_run: Path, command: Command) -> None:
    """Composed from the ledger's rows until the round: all of them for the last, fewer before."""
    contents = read_ledger(shared_run / "ledger.jsonl")
    header = contents.header
    for number in (1, 2):
        expected = state_privacy(
            contents.mechanisms[:number],
            header.sizes_array,
            label=header.label,
            neighbours=header.neighbours,
            delta=header.delta,
            jammer=header.jammer,
        ).to_json()
        said = summary(read_round(RunFolder(shared_run), number))
        assert {key: said[key] for key in expected} == expected
    assert said["epsilon"] == command("ledger", shared_run, "--json").json["epsilon"]


def test_a_client_that_jams(rotating_run: Path, tmp_path: Path, command: Command) -> None:
    said = summary(read_round(RunFolder(rotating_run)))
    assert said["jamming_client"] == "client-1"
    # Crystals within 1 ppm at 2.45 GHz, on both sides: 4.9 kHz at most, and not nothing.
    offsets = [abs(link["cfo_hz"]) for link in said["links"].values()]
    assert 10 < max(offsets) < 4900
    assert all(link["cfo_std_hz"] > 0 for link in said["links"].values())
    assert "by client-1" in command("inspect", rotating_run, "--out", tmp_path).out
    for name in PICTURES:
        check_picture(tmp_path / f"{name}.png")


def test_layout_agrees_with_the_channels(view: UplinkView) -> None:
    """Power in each slot is the link's gain times that of a sounding: -2.6 dB of full scale (phy.frame), and with 8 of
    40 symbols at 0.27 of that 0.9 dB less."""
    snapshot = view.snapshot
    for slot, start in enumerate(snapshot.slot_starts):
        first, last = start // snapshot.block_samples + 2, (start + snapshot.slot_samples) // snapshot.block_samples - 6
        heard_db = 10 * np.log10(np.mean(snapshot.sounding_power[first:last]))
        assert heard_db == pytest.approx(snapshot.gains_db[slot] - 3.5, abs=0.9)
    quiet = snapshot.sounding_power[: snapshot.quiet_samples // snapshot.block_samples]
    # The lab's noise and its DC offset of -50 dBFS.
    assert float(np.mean(quiet)) == pytest.approx(2 * np.mean(snapshot.noise_var_real_per_bin) + 1e-5, rel=0.1)


def test_spectrum_integrates_to_the_power(view: UplinkView) -> None:
    """Parseval: density times bandwidth is the payload's mean power; 1.5 dB for a window over a single symbol."""
    snapshot = view.snapshot
    blocks = snapshot.payload_power.size
    guards = snapshot.guard_samples // snapshot.block_samples
    power = float(np.mean(snapshot.payload_power[guards : blocks - guards]))
    integral = float(np.mean(snapshot.spectrum)) * snapshot.sample_rate_hz
    assert 10 * np.log10(integral / power) == pytest.approx(0.0, abs=1.5)


@pytest.mark.parametrize("delay", [-3.25, 0.0, 17.5])
def test_delay_of_a_pure_delay(view: UplinkView, delay: float) -> None:
    """H[k] = exp(-2j pi k d / N) is a delay of d samples."""
    turn = np.exp(-2j * np.pi * view.snapshot.subcarriers * delay / view.snapshot.fft_size).astype(np.complex64)
    snapshot = replace(view.snapshot, channels=np.tile(turn, (6, 1)))
    assert snapshot.delays_samples == pytest.approx(np.full(6, delay), abs=1e-3)


def texts_overlap(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts in the figure's panels, tick labels included, whose boxes share more than a pixel."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()

    def boxes() -> Iterator[tuple[str, Any]]:
        for panel in figure.axes:
            texts = [*panel.texts, panel.title, panel.xaxis.label, panel.yaxis.label]
            for axis in (panel.xaxis, panel.yaxis):
                low, high = sorted(axis.get_view_interval())
                texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            for text in texts:
                if text.get_visible() and text.get_text().strip():
                    yield text.get_text(), text.get_window_extent(renderer).padded(-1.0)

    return [(a, b) for (a, box), (b, other) in itertools.combinations(boxes(), 2) if box.overlaps(other)]


@pytest.mark.parametrize(
    ("name", "transmitters"),
    [
        *itertools.product(PICTURES, [6]),
        # The others do not depend on how many there are. 9 is the first number that is drawn as a map.
        *itertools.product(["channel", "timeline", "phase_error"], [2, 8, 9, 16, 51, 201]),
    ],
)
def test_labels_do_not_overlap(view: UplinkView, name: str, transmitters: int) -> None:
    assert texts_overlap(PICTURES[name](crowded(view, transmitters))) == []


def test_overlap_is_noticed(view: UplinkView) -> None:
    figure = timeline_figure(view)
    figure.axes[0].text(0.0, 0.0, "one")
    figure.axes[0].text(0.0, 0.0, "two")
    assert ("one", "two") in texts_overlap(figure)


def test_many_transmitters_are_drawn_as_maps(view: UplinkView, tmp_path: Path) -> None:
    assert not channel_figure(view).axes[0].images
    assert channel_figure(crowded(view)).axes[0].images
    for path in draw_round(crowded(view), tmp_path).values():
        check_picture(path)


def test_pauses_in_which_nobody_listened(view: UplinkView, tmp_path: Path) -> None:
    power = view.snapshot.sounding_power.copy()
    power[-20:] = np.nan
    check_picture(
        draw_round(replace(view, snapshot=replace(view.snapshot, sounding_power=power)), tmp_path)["timeline"]
    )


def refused(command: Command, *arguments: object) -> str:
    """The one line on stderr with which a command refuses."""
    outcome = command("inspect", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("airdp: error: ")
    assert outcome.err.count("\n") == 1
    return str(outcome.err)


def test_not_a_run(tmp_path: Path, command: Command) -> None:
    assert "is not the folder of a run" in refused(command, tmp_path)
    assert "is not the folder of a run" in refused(command, tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_figures")
def test_a_run_without_radios(tmp_path: Path, tiny: Callable[..., dict[str, Any]], command: Command) -> None:
    run(tiny(uplink={"uplinks": 1}), tmp_path / "run")
    message = refused(command, tmp_path / "run")
    assert "uplink.kind = 'symbol'" in message
    assert "uplink.kind = 'radio'" in message


@pytest.mark.parametrize("number", [0, -1, 3, 10**12])
def test_a_round_that_is_not_there(shared_run: Path, command: Command, number: int) -> None:
    message = refused(command, shared_run, "--round", number)
    assert f"no round {number}" in message
    assert "1-2" in message
    assert not (shared_run / "figures").exists()


def test_a_round_that_is_no_number(shared_run: Path, command: Command) -> None:
    assert command("inspect", shared_run, "--round", "last").code == 2


def test_rounds_that_remain(own_run: Path, command: Command) -> None:
    RunFolder(own_run).snapshot_path(1).unlink()
    assert "expected one of 2" in refused(command, own_run, "--round", 1)
    # A crash between an uplink and its checkpoint leaves arrays without a line: they are of no round yet.
    lines = RunFolder(own_run).metrics_path.read_bytes().split(b"\n")
    RunFolder(own_run).metrics_path.write_bytes(lines[0] + b"\n")
    assert "no finished radio uplink" in refused(command, own_run)


def test_a_run_that_has_not_begun(own_run: Path, command: Command) -> None:
    shutil.rmtree(own_run / "radio")
    assert "no finished radio uplink" in refused(command, own_run)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not an archive"])
def test_a_damaged_archive(own_run: Path, command: Command, content: bytes) -> None:
    RunFolder(own_run).snapshot_path(2).write_bytes(content)
    message = refused(command, own_run)
    assert "uplink-0002.npz is damaged" in message
    assert not (own_run / "figures").exists()


def test_archives_cut_or_changed_anywhere(own_run: Path, tmp_path: Path) -> None:
    """Whatever the byte: refused, or the same as before."""
    path = tmp_path / "cut.npz"
    whole = RunFolder(own_run).snapshot_path(2).read_bytes()
    original = read_snapshot(RunFolder(own_run).snapshot_path(2))
    rng = np.random.default_rng(1)
    for place in rng.integers(len(whole), size=40):
        path.write_bytes(whole[:place])
        with pytest.raises(RunFolderError, match="damaged"):
            read_snapshot(path)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            changed = read_snapshot(path)
        except RunFolderError:
            continue
        for name in Snapshot.__dataclass_fields__:
            assert np.array_equal(getattr(changed, name), getattr(original, name), equal_nan=name == "sounding_power")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"channels": None}, "channels"),
        ({"channels": np.zeros((6, 191), np.complex64)}, "channel_var"),
        ({"channels": np.zeros((0, 192), np.complex64)}, "names|channels"),
        ({"spectrum": np.full(256, np.nan)}, "'spectrum' is not finite"),
        ({"sounding_power": np.full(100, np.inf, np.float32)}, "'sounding_power' is not finite"),
        ({"cells": np.zeros(4, np.float32)}, "cells"),
        ({"backoffs": np.ones(7), "phase_error_rad": np.ones(7)}, "do not fit together"),
        ({"noise_bins": np.full(192, 256)}, "do not fit together"),
        ({"block_samples": np.array(0)}, "layout is impossible"),
        ({"sample_rate_hz": np.array(-5e6)}, "layout is impossible"),
        ({"names": np.array([{}] * 6, dtype=object)}, "pickle"),
        ({"backoffs": np.ones(4), "phase_error_rad": np.ones(4)}, "belongs to another run"),
    ],
)
def test_arrays_that_do_not_fit(own_run: Path, changes: dict[str, Any], expected: str) -> None:
    change_snapshot(own_run, **changes)
    with pytest.raises(RunFolderError, match=expected):
        read_round(RunFolder(own_run))


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("diagnostics"),
        lambda row: row["diagnostics"].pop("nmse_csi"),
        lambda row: row["diagnostics"].update(nmse_db="inf"),
        lambda row: row.update(backoff_max=None),
        lambda row: row.update(jamming_client=5),
        lambda row: row.update(jamming_client="client-1"),
    ],
)
def test_a_damaged_line_of_metrics(own_run: Path, command: Command, change: Callable[[dict[str, Any]], object]) -> None:
    change_metrics(own_run, change)
    assert "metrics.jsonl is damaged" in refused(command, own_run)


def test_a_ledger_that_was_edited(own_run: Path, command: Command) -> None:
    path = own_run / "ledger.jsonl"
    path.write_text(path.read_text().replace('"alpha_u":', '"alpha_u":1', 1))
    assert "edited or damaged" in refused(command, own_run)


def test_a_ledger_of_another_run(own_run: Path, command: Command) -> None:
    path = own_run / "ledger.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "does not know round 2" in refused(command, own_run)


def test_a_folder_that_cannot_be_written(shared_run: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in refused(command, shared_run, "--out", tmp_path / "file")
    assert "--out" in refused(command, shared_run, "--out", tmp_path / "file" / "below")
