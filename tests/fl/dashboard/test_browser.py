"""The page in a real browser: its numbers are the files', nothing overflows, nothing is asked of anybody else."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from fl.dashboard.beside import page_beside
from fl.run import run
from fl.run.folder import RunFolder
from hardware.foundation.child_processes import child_environment
from tests.conftest import START
from tests.fl.own.regressions import regression_settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no browser with its driver: apt-get install --no-install-recommends chromium chromium-driver",
)
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-background-networking",
)
WAIT_S = 60
Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield found
    found.quit()


def show(browser: Browser, url: str, *, width: int = 1440, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(url)


def value(browser: Browser, selector: str) -> float:
    """The number that the page holds beside its text, exactly as it was sent."""
    found: str = browser.execute_script(
        "const e = document.querySelector(arguments[0]); return e && e.dataset.value || 'NaN'", selector
    )
    return float(found)


def text(browser: Browser, selector: str) -> str:
    found: str = browser.execute_script("return document.querySelector(arguments[0]).innerText", selector)
    return found


def wait_for(browser: Browser, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, WAIT_S, poll_frequency=0.1).until(lambda _: condition())


@pytest.fixture(scope="module")
def page(radio_run: Path) -> Iterator[str]:
    with page_beside(radio_run, "127.0.0.1:0") as url:
        yield url


def inked(browser: Browser, selector: str) -> float:
    """Share of a canvas that is drawn on."""
    found: float = browser.execute_script(
        "const c = document.querySelector(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return 4 * n / d.length",
        selector,
    )
    return found


def assert_shows(browser: Browser, folder: Path) -> None:
    """Numbers on the page are those of the files."""
    last = RunFolder(folder).metrics()[-1]
    result = json.loads((folder / "result.json").read_text())
    wait_for(browser, lambda: text(browser, "#status") == "finished" and value(browser, "#uplinks") == last["uplink"])
    wait_for(browser, lambda: value(browser, "#epsilon") == result["epsilon"]["paper"])
    assert value(browser, "#accuracy") == last["accuracy"] == result["accuracy"]
    assert text(browser, "#accuracy") == f"{100 * last['accuracy']:.2f} %"
    assert value(browser, "#loss") == last["loss"]
    assert value(browser, "#sigma") == last["sigma"]
    for stated in result["privacy"]:
        for accountant, epsilon in stated["epsilon"].items():
            row = f'.statement[data-label="{stated["label"]}"]'
            assert value(browser, f'{row} [data-accountant="{accountant}"]') == float(epsilon)
            said = text(browser, row)
            for part in (
                stated["neighbours"],
                f"view {stated['view']}",
                "delta 1e-05",
                f"sigma {stated['sigma_origin']}",
            ):
                assert part in said


def test_a_finished_run(browser: Browser, page: str, radio_run: Path) -> None:
    show(browser, page)
    assert_shows(browser, radio_run)
    last = RunFolder(radio_run).metrics()[-1]
    noise = json.loads((radio_run / "noise.jsonl").read_text().splitlines()[-1])["silence"]
    wait_for(browser, lambda: value(browser, "#noise-note") == noise["noise"]["noise_var_real"])
    assert value(browser, "#noise-verdict") == noise["sigma"]["noise_var_real"]
    assert noise["diagnostics"]["verdict"] in text(browser, "#noise-verdict")
    for cause, name in (("jammer", "jammer"), ("thermal", "thermal noise"), ("csi", "channel estimate")):
        assert value(browser, f'#budget [data-name="{name}"]') == last["diagnostics"][f"nmse_{cause}"]
    assert value(browser, "#budget-note") == last["diagnostics"]["nmse_db"]
    assert value(browser, '#backoffs [data-name="client-3"]') == 1.0
    states = browser.execute_script("return [...document.querySelectorAll('.node')].map(n => n.dataset.name)")
    assert sorted(states) == ["client-1", "client-2", "client-3", "client-4", "client-5", "jammer", "ps"]
    wait_for(browser, lambda: "uplink 5: done" in text(browser, "#log"))
    for canvas, least in (
        ("#waterfall", 0.5),
        ("#sum", 0.005),
        ("#plot-spectrum canvas", 0.005),
        ("#plot-noise canvas", 0.005),
    ):
        assert inked(browser, canvas) > least, canvas


def test_nobody_else_is_asked(browser: Browser, page: str) -> None:
    show(browser, page)
    wait_for(browser, lambda: value(browser, "#uplinks") == 5)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert page in asked
    assert [url for url in asked if not url.startswith((page, "data:", "chrome:"))] == []
    # A policy that is broken, or an error in a script, would stand here.
    assert [entry["message"] for entry in browser.get_log("browser")] == []


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (800, False), (1440, True)])
def test_nothing_overflows(browser: Browser, page: str, width: int, dark: bool) -> None:
    show(browser, page, width=width, dark=dark)
    wait_for(browser, lambda: value(browser, "#uplinks") == 5 and inked(browser, "#waterfall") > 0)
    out = browser.execute_script(
        "return [...document.body.querySelectorAll('*')].filter(e => !e.closest('.scroll') && !e.closest('.u-wrap')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 99))"
    )
    assert out == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(16, 22, 27)" if dark else "rgb(243, 245, 247)")
    smallest = browser.execute_script(
        "const size = e => parseFloat(getComputedStyle(e).fontSize);"
        "return Math.min(...[...document.querySelectorAll('main *, header *')].map(size))"
    )
    assert smallest >= 11


def test_text_of_a_folder_is_text(browser: Browser, radio_run: Path, tmp_path: Path) -> None:
    """Names and lines of a stranger's folder do not become elements or scripts."""
    folder, trap = tmp_path / "run", "<img src=x onerror=document.title='sprung'>"
    shutil.copytree(radio_run, folder)
    config = (folder / "config.toml").read_text()
    line = next(line for line in config.splitlines() if line.startswith("description"))
    (folder / "config.toml").write_text(config.replace(line, f'description = "{trap}"'))
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps({"time": trap, "kind": "message", "level": trap, "text": trap}) + "\n")
        file.write(json.dumps({"time": "", "kind": "node", "node": trap, "state": trap, "reason": trap}) + "\n")
    with page_beside(folder, "127.0.0.1:0") as url:
        show(browser, url)
        wait_for(browser, lambda: trap in text(browser, "#log") and trap in text(browser, "#nodes"))
        assert trap in text(browser, "#description")
        assert browser.execute_script("return document.querySelectorAll('img').length") == 0
        assert browser.title != "sprung"


@contextmanager
def live_run(folder: Path, config: str, *changes: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`airdp run CONFIG --live` and its page's address."""
    settings = [part for change in changes for part in ("--set", change)]
    command = [sys.executable, "-c", START, "run", config, *settings, "--out", str(folder), "--json", "--live"]
    with subprocess.Popen(
        [*command, "--live-at", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith("live page: http://127.0.0.1:"), line + process.stderr.read()
            yield process, line.split()[-1]
        finally:
            if process.poll() is None:
                process.terminate()


def assert_shows_while_running(browser: Browser, folder: Path) -> None:
    """While the run goes on, what the page shows is the line of the uplink that it says it is of."""
    wait_for(browser, lambda: value(browser, "#uplinks") >= 2 and text(browser, "#status") == "running")
    shown = browser.execute_script(
        "const d = id => document.getElementById(id).dataset.value; return [d('uplinks'), d('accuracy'), d('loss')]"
    )
    row = RunFolder(folder).metrics()[int(shown[0]) - 1]
    assert [float(number) for number in shown] == [row["uplink"], row["accuracy"], row["loss"]]


def test_during_a_run_over_the_loopback(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with live_run(folder, "loopback", "uplink.uplinks=25", "local.epochs=2", "model.hidden=16") as (process, url):
        show(browser, url, width=800)
        assert_shows_while_running(browser, folder)
        frames = int(browser.execute_script("return document.body.dataset.frames"))
        wait_for(browser, lambda: int(browser.execute_script("return document.body.dataset.frames")) > frames + 10)
        assert inked(browser, "#waterfall") > 0.5
        said, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        # What was sent last stays on the page when its server has gone with the run.
        wait_for(browser, lambda: "server has gone" in text(browser, "#status"))
        assert value(browser, "#uplinks") == 25
        assert value(browser, "#accuracy") == json.loads(said)["accuracy"]


@pytest.mark.skipif(shutil.which("iio_info") is None, reason="no libiio: apt-get install libiio-utils")
def test_during_a_run_over_virtual_plutos(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with live_run(folder, "pluto-virtual", "uplink.uplinks=3", "model.hidden=8", "local.epochs=1") as (process, url):
        show(browser, url, width=800)
        assert_shows_while_running(browser, folder)
        assert "client-1" in text(browser, "#links")
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
    with page_beside(folder, "127.0.0.1:0") as url:
        show(browser, url)
        assert_shows(browser, folder)


def test_a_score_that_is_no_percentage(browser: Browser, tmp_path: Path) -> None:
    folder = run("quickstart", tmp_path / "run", overrides=regression_settings(tmp_path)).out
    with page_beside(folder, "127.0.0.1:0") as url:
        show(browser, url)
        last = RunFolder(folder).metrics()[-1]
        wait_for(browser, lambda: value(browser, "#accuracy") == last["accuracy"])
        assert text(browser, "#score-name") == "Test R²"
        assert float(text(browser, "#accuracy").replace("\u2212", "-")) == pytest.approx(last["accuracy"], rel=1e-3)
        assert "test R²" in text(browser, "#card-accuracy")
        assert "%" not in text(browser, "#card-accuracy")


def test_no_process_stays_when_a_run_is_killed(tmp_path: Path) -> None:
    with live_run(tmp_path / "run", "quickstart", "uplink.uplinks=1000") as (process, url):
        port = int(url.split(":")[2].rstrip("/"))
        process.kill()
        process.wait()
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and _listens(port):
            time.sleep(0.1)
        assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
