"""The drawings themselves, and variants of them. Nothing here needs GNU Radio."""

import itertools
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from flowgraphs.errors import FlowgraphError, UnknownNameError
from flowgraphs.source import FOLDER, NAMES, describe, describe_text, source_file, variant
from tests.conftest import REPOSITORY

TRANSMITTER = {
    "samples_in": "text",
    "samples_out": "text",
    "control_address": "text",
    "control_port": "whole number",
    "sample_rate_hz": "number",
    "center_hz": "number",
    "bandwidth_hz": "number",
    "tx_gain_db": "number",
    "pluto_uri": "text",
    "usrp_args": "text",
    "usrp_clock": "text",
}
RECEIVER = {name.replace("tx_gain", "rx_gain"): kind for name, kind in TRANSMITTER.items()} | {"monitor_out": "text"}
LINK = {
    "samples_in": "text",
    "delay_samples": "whole number",
    "cfo_hz": "number",
    "taps": "text",
    "gain_db": "number",
}
PARAMETERS = {
    "client_tx": TRANSMITTER,
    "jammer_tx": TRANSMITTER | {"noise_std": "number", "noise_seed": "whole number"},
    "ps_rx": RECEIVER,
    "air": {
        "samples_out": "text",
        "control_address": "text",
        "control_port": "whole number",
        "sample_rate_hz": "number",
        "noise_var_complex": "number",
        "noise_seed": "whole number",
    }
    | {f"{name}_{number}": kind for number in (1, 2, 3, 4) for name, kind in LINK.items()},
    "ps_monitor": {"samples_in": "text", "sample_rate_hz": "number", "center_hz": "number"},
}
DEVICES = ("zeromq", "pluto", "uhd")


def graph_of(text: str) -> dict[str, Any]:
    graph: dict[str, Any] = yaml.safe_load(text)
    return graph


def drawn(name: str) -> dict[str, Any]:
    return graph_of(source_file(name).read_text())


def enabled(graph: dict[str, Any]) -> set[str]:
    return {block["name"] for block in graph["blocks"] if block["states"]["state"] == "enabled"}


def test_these_are_the_graphs() -> None:
    assert set(NAMES) == set(PARAMETERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_has_the_parameters_that_its_users_count_on(name: str) -> None:
    graph = describe(name)
    assert {key: parameter.kind.value for key, parameter in graph.parameters.items()} == PARAMETERS[name]
    for parameter in graph.parameters.values():
        parameter.parse(parameter.default)
        assert len(parameter.label) > 8
        # argparse would take it for a format.
        assert "%" not in parameter.label


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_says_what_it_is_and_how_to_start_it(name: str) -> None:
    graph = drawn(name)
    options = graph["options"]["parameters"]
    assert options["id"] == name
    assert options["author"] == "airdp"
    assert options["title"]
    assert options["description"]
    assert graph["metadata"]["file_format"] == 1
    notes = " ".join(block["parameters"]["comment"] for block in graph["blocks"] if block["id"] == "note")
    assert f"airdp flowgraph {name}" in notes
    assert "E enables" in notes


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_has_no_code_in_it_and_no_two_blocks_in_one_place(name: str) -> None:
    blocks = drawn(name)["blocks"]
    assert not {block["id"] for block in blocks} & {"epy_block", "epy_module"}
    # Companion has no other way to say how large a window opens.
    assert [block["name"] for block in blocks if block["id"] == "snippet"] == ["first_size"] * (name == "ps_monitor")
    places = [tuple(block["states"]["coordinate"]) for block in blocks]
    assert len(set(places)) == len(places)
    assert len({block["name"] for block in blocks}) == len(blocks)


@pytest.mark.parametrize("name", NAMES)
def test_streams_carry_sample_numbers_and_hold_back_little(name: str) -> None:
    streams = [block for block in drawn(name)["blocks"] if block["id"].startswith("zeromq_")]
    assert streams
    for block in streams:
        assert {"pass_tags": "True", "hwm": "4", "type": "complex"}.items() <= block["parameters"].items()


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_a_window_ends_with_its_input_and_can_be_controlled(name: str) -> None:
    graph = drawn(name)
    options = graph["options"]["parameters"]
    if describe(name).has_window:
        assert name == "ps_monitor"
        return
    assert options["generate_options"] == "no_gui"
    assert options["run_options"] == "prompt"
    server = next(block for block in graph["blocks"] if block["id"] == "xmlrpc_server")
    assert server["parameters"]["addr"] == "control_address"
    assert server["parameters"]["port"] == "control_port"
    # GNU Radio builds blocks in reverse alphabetical order: the server must be the last, or it answers too early.
    built = [block["name"] for block in graph["blocks"] if block["id"] not in ("parameter", "note", "import")]
    assert min(built) == server["name"]


def test_the_jammers_own_noise_is_marked_as_no_privacy_in_title_and_note() -> None:
    graph = drawn("jammer_tx")
    assert "NOT cryptographically random" in graph["options"]["parameters"]["title"]
    source = next(block for block in graph["blocks"] if block["name"] == "noise_gnuradio_source")
    assert "no privacy may be claimed" in source["parameters"]["comment"]
    assert source["states"]["state"] == "disabled"


def test_the_air_draws_its_noise_afresh() -> None:
    graph = drawn("air")
    assert not [block for block in graph["blocks"] if "fastnoise" in block["id"]]
    for block in graph["blocks"]:
        if block["id"] == "channels_channel_model":
            assert block["parameters"]["noise_voltage"] == "0"
            assert block["parameters"]["epsilon"] == "1.0"


@pytest.mark.parametrize(("name", "device"), list(itertools.product(("client_tx", "jammer_tx", "ps_rx"), DEVICES)))
def test_a_choice_enables_its_blocks_and_disables_the_others(name: str, device: str) -> None:
    before = source_file(name).read_bytes()
    graph = graph_of(variant(name, {"device": device}))
    for block in graph["blocks"]:
        if block["name"].startswith("device_"):
            assert (block["states"]["state"] == "enabled") == block["name"].startswith(f"device_{device}_")
    assert f"device_{device}_{'source' if name == 'ps_rx' else 'sink'}" in enabled(graph)
    # Everything else, and the file, are as before.
    untouched = [block for block in graph["blocks"] if not block["name"].startswith("device_")]
    assert untouched == [block for block in drawn(name)["blocks"] if not block["name"].startswith("device_")]
    assert source_file(name).read_bytes() == before


def test_what_is_drawn_is_the_first_choice() -> None:
    assert describe("client_tx").choices["device"][0] == "zeromq"
    assert dict(describe("jammer_tx").choices) == {
        "device": ("zeromq", "pluto", "uhd"),
        "noise": ("host", "gnuradio"),
    }
    chosen = describe_text(variant("jammer_tx", {"noise": "gnuradio", "device": "uhd"}))
    assert chosen.choices["noise"][0] == "gnuradio"
    assert chosen.choices["device"][0] == "uhd"
    assert graph_of(variant("client_tx", {"device": "zeromq"})) == drawn("client_tx")


def test_only_enabled_blocks_bind_and_connect() -> None:
    assert describe("client_tx").binds == ("samples_out",)
    assert describe("client_tx").connects == ("samples_in",)
    assert describe_text(variant("client_tx", {"device": "pluto"})).binds == ()
    assert set(describe("ps_rx").binds) == {"samples_out", "monitor_out"}
    assert describe_text(variant("ps_rx", {"device": "uhd"})).connects == ()
    assert describe_text(variant("jammer_tx", {"noise": "gnuradio"})).connects == ()
    assert describe_text(variant("air", transmitters=2)).connects == ("samples_in_1", "samples_in_2")


@pytest.mark.parametrize("count", [1, 2, 4, 6, 12])
def test_the_air_has_as_many_chains_as_asked(count: int) -> None:
    text = variant("air", transmitters=count)
    graph, described = graph_of(text), describe_text(text)
    assert described.transmitters == count
    chains = range(1, count + 1)
    assert {name for name in described.parameters if re.search(r"_\d+$", name)} == {
        f"{name}_{number}" for number in chains for name in LINK
    }
    adder = next(block for block in graph["blocks"] if block["name"] == "summation")
    assert adder["parameters"]["num_inputs"] == str(count + 1)
    assert {tuple(link) for link in graph["connections"]} == {
        ("receiver_noise", "0", "summation", "0"),
        ("summation", "0", "receiver_sink", "0"),
        *((f"transmitter_{number}", "0", f"delay_{number}", "0") for number in chains),
        *((f"delay_{number}", "0", f"channel_{number}", "0") for number in chains),
        *((f"channel_{number}", "0", f"gain_{number}", "0") for number in chains),
        *((f"gain_{number}", "0", "summation", str(number)) for number in chains),
    }
    assert len({described.parameters[f"samples_in_{number}"].default for number in chains}) == count
    places = [tuple(block["states"]["coordinate"]) for block in graph["blocks"]]
    assert len(set(places)) == len(places)
    for number in chains:
        channel = next(block for block in graph["blocks"] if block["name"] == f"channel_{number}")["parameters"]
        assert channel["freq_offset"] == f"cfo_hz_{number} / sample_rate_hz"
        assert set(re.findall(r"taps_\d+", channel["taps"])) == {f"taps_{number}"}
        assert f"ransmitter {number} " in described.parameters[f"gain_db_{number}"].label


def test_four_chains_are_what_is_drawn() -> None:
    assert graph_of(variant("air", transmitters=4)) == drawn("air")


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown flowgraph 'clint_tx'; expected one of: air, client_tx"):
        variant("clint_tx")
    with pytest.raises(UnknownNameError, match="unknown device 'hackrf' of client_tx; expected one of: zeromq, pluto"):
        variant("client_tx", {"device": "hackrf"})
    with pytest.raises(UnknownNameError, match="unknown choice 'noise' of client_tx; expected one of: device"):
        variant("client_tx", {"noise": "host"})
    with pytest.raises(FlowgraphError, match="client_tx has no chains"):
        variant("client_tx", transmitters=2)
    for number in (0, -1):
        with pytest.raises(FlowgraphError, match=f"{number} transmitters were asked of air; expected 1 or more"):
            variant("air", transmitters=number)


@pytest.mark.parametrize(
    ("graph", "parameter", "value", "expected"),
    [
        ("client_tx", "tx_gain_db", "loud", "a number"),
        ("client_tx", "tx_gain_db", "nan", "a number"),
        ("client_tx", "control_port", "80.5", "a whole number"),
        ("client_tx", "control_port", "70000", "a TCP port"),
        ("client_tx", "sample_rate_hz", "0", "a number above 0"),
        ("client_tx", "samples_in", "127.0.0.1:5501", "tcp://HOST:PORT or ipc://PATH"),
        ("air", "taps_2", "1;2", "complex numbers with commas between"),
        ("air", "taps_2", "", "complex numbers with commas between"),
        ("air", "delay_samples_1", "-1", "0 or more"),
        ("air", "noise_var_complex", "-0.1", "0 or more"),
    ],
)
def test_a_value_that_cannot_be_is_refused(graph: str, parameter: str, value: str, expected: str) -> None:
    with pytest.raises(FlowgraphError, match=f"^{parameter} is '{re.escape(value)}'; expected {re.escape(expected)}"):
        describe(graph).parameters[parameter].parse(value)


@pytest.mark.parametrize(
    ("graph", "parameter", "given", "value"),
    [
        ("client_tx", "tx_gain_db", "-3", -3.0),
        ("client_tx", "center_hz", "2.45e9", 2.45e9),
        ("client_tx", "control_port", 5000, 5000),
        ("client_tx", "pluto_uri", "", ""),
        ("client_tx", "samples_out", "ipc:///tmp/x", "ipc:///tmp/x"),
        ("air", "taps_1", "1, 0.2j,-0.5+1j", "1, 0.2j,-0.5+1j"),
        ("air", "delay_samples_1", "7", 7),
    ],
)
def test_a_value_comes_in_the_type_of_its_parameter(graph: str, parameter: str, given: Any, value: Any) -> None:
    parsed = describe(graph).parameters[parameter].parse(given)
    assert (parsed, type(parsed)) == (value, type(value))


def test_nothing_here_imports_gnu_radio() -> None:
    check = (
        "import sys; sys.modules.update(gnuradio=None, pmt=None); "
        "import flowgraphs.build, flowgraphs.runtime, flowgraphs.source, fl.cli.labs.flowgraph"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=REPOSITORY)


def test_programs_that_companion_generates_here_are_never_committed() -> None:
    ignored = (FOLDER / ".gitignore").read_text().split()
    assert {f"/{name}.py" for name in NAMES} <= set(ignored)
