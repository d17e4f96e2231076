"""What is sent to a browser is what the files say; strangers' files are shown as far as they can be."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.dashboard.follow import Followed
from fl.dashboard.privacy import Privacy
from fl.dashboard.radio import _packed
from fl.inspect.view import read_snapshot
from fl.privacy.ledger import Ledger
from fl.privacy.mechanism import RoundMechanism
from fl.run import run
from fl.run.folder import RunFolder

Tiny = Callable[..., dict[str, Any]]


def first_frame(folder: Path) -> dict[str, Any]:
    followed = Followed(RunFolder(folder))
    followed.update()
    frame = followed.news({})
    assert json.loads(json.dumps(frame, allow_nan=False)) == frame
    return frame


def rows_of(frame: dict[str, Any]) -> list[dict[str, Any]]:
    metrics = frame["metrics"]
    return [dict(zip(metrics["columns"], row, strict=True)) for row in metrics["rows"]]


def test_a_frame_holds_what_the_files_hold(radio_run: Path) -> None:
    frame, result = first_frame(radio_run), json.loads((radio_run / "result.json").read_text())
    written = RunFolder(radio_run).metrics()
    for shown, row in zip(rows_of(frame), written, strict=True):
        diagnostics = {name: row["diagnostics"][name] for name in shown if name.startswith(("nmse", "thermal"))}
        assert shown == {**{name: row[name] for name in shown if name in row}, **diagnostics}
        assert {"nmse_db", "nmse_jammer", "accuracy", "epsilon"} <= shown.keys()
    # Epsilon is recomputed from the ledger; the run has written the same, label by label.
    for shown, stated in zip(frame["privacy"]["statements"], result["privacy"], strict=True):
        assert {key: shown[key] for key in stated} == stated
    assert frame["run"]["status"] == "finished"
    assert (frame["run"]["label"], frame["run"]["kind"], frame["run"]["uplinks"]) == ("paper-claim", "radio", 5)


def test_the_radio_part_is_the_last_snapshot(radio_run: Path) -> None:
    radio, snapshot = first_frame(radio_run)["radio"], read_snapshot(RunFolder(radio_run).snapshot_path(5))
    assert radio["uplink"] == 5
    assert radio["names"] == [str(name) for name in snapshot.names]
    assert radio["cells"] == _packed(snapshot.cells[:2048].view(np.float32))
    assert [link["gain_db"] for link in radio["links"]] == snapshot.gains_db.tolist()
    assert [link["backoff"] for link in radio["links"]] == [*snapshot.backoffs.tolist(), None]
    wanted = 10 * np.log10(np.fft.fftshift(snapshot.spectrum))
    assert np.abs(np.array(radio["spectrum_db"]) - wanted).max() <= 0.005 + 1e-9


def test_a_waterfall_has_the_payload_between_quiet_margins(radio_run: Path) -> None:
    """Mean over its rows is the spectrum; before and after the payload only the jammer and the noise are there."""
    falls = first_frame(radio_run)["waterfalls"]
    assert [fall["uplink"] for fall in falls] == [1, 2, 3, 4, 5]
    import base64

    rows = np.frombuffer(base64.b64decode(falls[-1]["db"]), "<f4").reshape(falls[-1]["rows"], falls[-1]["bins"])
    used = rows[:, rows.shape[1] // 2 + 10 : rows.shape[1] // 2 + 80]
    level_db = 10 * np.log10(np.mean(10 ** (used / 10), axis=1))
    assert level_db[len(level_db) // 2] > level_db[0] + 1.0
    assert level_db[len(level_db) // 2] > level_db[-1] + 1.0


def test_noise_and_nodes(radio_run: Path) -> None:
    frame = first_frame(radio_run)
    lines = [json.loads(line) for line in (radio_run / "noise.jsonl").read_text().splitlines()]
    assert len(frame["noise"]) == len(lines) == 5
    for shown, line in zip(frame["noise"], lines, strict=True):
        assert shown["noise_var_real"] == line["silence"]["noise"]["noise_var_real"]
        assert shown["ci"] == line["silence"]["noise"]["ci"]
        assert shown["with_jammer_var_real"] == line["payload"]["margins"]["noise_var_real"]
        assert shown["verdict"].startswith("noise: Gaussian")
    nodes = {node["name"]: node for node in frame["nodes"]}
    assert set(nodes) == {"ps", "jammer", *(f"client-{number}" for number in range(1, 6))}
    assert (nodes["ps"]["role"], nodes["ps"]["state"], nodes["ps"]["uplink"]) == ("ps", "received", 5)


def test_only_what_is_new_is_sent(radio_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(radio_run, folder)
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    followed = Followed(RunFolder(folder))
    sent: dict[str, int] = {}
    followed.update()
    assert len(followed.news(sent)["metrics"]["rows"]) == 3
    followed.update()
    assert set(followed.news(sent)) == {"now", "run"}
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(lines[3])
    followed.update()
    frame = followed.news(sent)
    assert (frame["metrics"]["from"], len(frame["metrics"]["rows"]), frame["radio"]["uplink"]) == (3, 1, 4)
    # A run that is resumed takes rows back: a browser gets them anew.
    RunFolder(folder).keep_metrics_until(2)
    followed.update()
    frame = followed.news(sent)
    assert (frame["metrics"]["from"], len(frame["metrics"]["rows"])) == (0, 2)


def test_a_run_that_has_not_begun_and_then_goes_on(tmp_path: Path, tiny: Tiny) -> None:
    followed = Followed(RunFolder(tmp_path / "run"))
    followed.update()
    assert followed.news({})["run"]["status"] == "waiting for the run to begin"
    seen = []

    def look(metrics: object) -> None:
        followed.update()
        seen.append((followed.status, followed.learning.uplink))

    run(tiny(uplink={"uplinks": 2}), tmp_path / "run", on_uplink=look)
    assert seen == [("running", 1), ("running", 2)]
    followed.update()
    assert followed.status == "finished"


def test_a_transmission_on_the_air_does_not_make_epsilon_jump(radio_run: Path, tmp_path: Path) -> None:
    """Without an account it counts without the jammer: said when the ledger stands still, not while it grows."""
    folder = tmp_path / "run"
    shutil.copytree(radio_run, folder)
    now = 0.0
    privacy = Privacy(RunFolder(folder), clock=lambda: now)
    privacy.update(running=True)
    assert privacy.said is not None
    before = privacy.said["statements"][0]["epsilon"]["exact"]
    ledger = Ledger.open(folder / "ledger.jsonl", resumed=False)
    mechanism = list(ledger.mechanisms.values())[-1]
    ledger.authorise(RoundMechanism.from_json({**mechanism.to_json(), "uplink": 6}))
    now = 1.0
    privacy.update(running=True)
    assert privacy.said["statements"][0]["epsilon"]["exact"] == before
    now = 9.0
    privacy.update(running=True)
    assert (privacy.said["authorised"], privacy.said["accounted"]) == (6, 5)
    assert privacy.said["statements"][0]["epsilon"]["exact"] > before


def test_a_broken_ledger_is_said_and_not_a_number(radio_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(radio_run, folder)
    content = (folder / "ledger.jsonl").read_bytes()
    (folder / "ledger.jsonl").write_bytes(content.replace(b'"alpha_u":', b'"alpha_u": ', 1))
    privacy = first_frame(folder)["privacy"]
    assert set(privacy) == {"error"}
    assert "does not match its hash" in privacy["error"]


def test_a_strangers_folder_is_shown_as_far_as_it_can_be(
    radio_run: Path, tmp_path: Path, snapshot: Callable[[Path], dict[str, str]]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(radio_run, folder)
    (folder / "noise.jsonl").unlink()
    os.mkfifo(tmp_path / "pipe")
    (folder / "noise.jsonl").symlink_to(tmp_path / "pipe")
    (folder / "result.json").write_bytes(b"[" * 100_000)
    (folder / "radio" / "uplink-0005.npz").write_bytes(b"PK nonsense")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"uplink": 6, "accuracy": NaN, "loss": "<b>", "epsilon": 1e999, "diagnostics": 3}\nrubbish\n')
    (folder / "log.jsonl").write_text('{"kind": "node", "node": {"a": 1}, "state": 7}\n{"kind": "message"}\n[]\n')
    (folder / "radio" / "uplink-0006.npz").write_bytes(b"PK nonsense")
    frame = first_frame(folder)
    (problem,) = frame["run"]["problems"]
    assert problem.startswith("noise.jsonl")
    last = rows_of(frame)[-1]
    assert (last["accuracy"], last["loss"], last["epsilon"], last["nmse_db"]) == ("nan", None, "inf", None)
    assert frame["run"]["damaged_lines"] == 1
    assert "damaged" in frame["radio"]["error"]


def test_nothing_is_imported_from_a_folder(radio_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    shutil.copytree(radio_run, folder)
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace('module = ""', 'module = "trap:Net"'))
    assert "trap:Net" in (folder / "config.toml").read_text()
    (folder / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nclass Net: pass\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    frame = first_frame(folder)
    assert frame["run"]["name"] == "tiny"
    assert not (tmp_path / "sprung").exists()
