"""Run one of the GNU Radio flowgraphs until Ctrl-C, or list them.

Without NAME: what there is, with choices and parameters. With NAME: the graph is compiled where it is not yet, then
runs here; its parameters can be set and read by XML-RPC while it runs.
"""

import argparse
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fl.cli.output import PROGRESS, RESULTS, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from flowgraphs.runtime import FlowgraphProcess
    from flowgraphs.source import Flowgraph

_READY_S = 60.0
_WAIT_S = 0.5
_GAIN = "tx_gain_db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="of the flowgraph (default: list them)")
    parser.add_argument("--device", metavar="D", help="what it sends and receives through (default zeromq)")
    parser.add_argument("--noise", metavar="N", help="of jammer_tx: who makes it (default host)")
    parser.add_argument("--transmitters", type=int, metavar="N", help="of air (default 4)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PARAMETER=VALUE", help="a parameter of the graph; repeatable"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--edit", action="store_true", help="open the drawing in GNU Radio Companion instead")
    instead.add_argument("--compile-only", action="store_true", help="print where the program is instead of running it")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def call(options: argparse.Namespace) -> int:
    """List, edit, compile or run."""
    if options.name is None:
        return _list(options)
    with _suggestions():
        if options.edit:
            return _edit(options.name)
        return _run(options)


@contextmanager
def _suggestions() -> Iterator[None]:
    """A misspelt name is answered with the nearest valid one."""
    from flowgraphs.errors import FlowgraphError, UnknownNameError
    from hardware.foundation.sections import nearest

    try:
        yield
    except UnknownNameError as error:
        raise FlowgraphError(f"{error}{nearest(error.given, error.valid)}") from error


def _list(options: argparse.Namespace) -> int:
    from flowgraphs.errors import FlowgraphError
    from flowgraphs.source import NAMES, describe

    given = [name for name in ("device", "noise", "transmitters", "edit", "compile_only", "set") if vars(options)[name]]
    if given:
        raise FlowgraphError(f"--{given[0].replace('_', '-')} needs the name of a flowgraph: {', '.join(NAMES)}")
    graphs = [describe(name) for name in NAMES]
    if options.json:
        print_json({"flowgraphs": [_json(graph) for graph in graphs]})
    else:
        _print_table(graphs)
    return 0


def _json(graph: "Flowgraph") -> dict[str, Any]:
    return {
        "name": graph.name,
        "title": graph.title,
        "description": graph.description,
        "choices": {group: list(choices) for group, choices in graph.choices.items()},
        "transmitters": graph.transmitters,
        "parameters": [vars(parameter) for parameter in graph.parameters.values()],
    }


def _print_table(graphs: "Sequence[Flowgraph]") -> None:
    from rich.markup import escape
    from rich.table import Table

    for graph in graphs:
        table = Table("parameter", "default", "what it is", title=f"{graph.name}: {graph.description}")
        table.title_justify = "left"
        # Of the chains of transmitters, one stands for all.
        repeated = re.compile(r"_([2-9]|\d\d+)$")
        for parameter in graph.parameters.values():
            if not repeated.search(parameter.id):
                table.add_row(parameter.id, escape(parameter.default), escape(parameter.label))
        RESULTS.print(table)
        offers = [f"--{group} {'|'.join(choices)}" for group, choices in graph.choices.items()]
        if graph.transmitters is not None:
            offers.append(f"--transmitters N (default {graph.transmitters}; parameters …_1 to …_N)")
        RESULTS.print(f"airdp flowgraph {graph.name} {' '.join(offers)}".rstrip(), soft_wrap=True, markup=False)
        RESULTS.print()


def _edit(name: str) -> int:
    import shutil
    import subprocess

    from flowgraphs.build import INSTALL
    from flowgraphs.errors import FlowgraphError
    from flowgraphs.runtime import require_display
    from flowgraphs.source import source_file

    drawn = source_file(name)
    companion = shutil.which("gnuradio-companion")
    if companion is None:
        raise FlowgraphError(f"gnuradio-companion was not found; as root: {INSTALL} gir1.2-gtk-3.0")
    require_display("GNU Radio Companion", f"airdp flowgraph {name} --edit")
    code = subprocess.run([companion, str(drawn)], check=False).returncode
    if code:
        raise FlowgraphError(
            f"gnuradio-companion ended with code {code}; its reason is above; as root: {INSTALL} gir1.2-gtk-3.0"
        )
    return 0


def _run(options: argparse.Namespace) -> int:
    from flowgraphs.build import build
    from flowgraphs.runtime import FlowgraphProcess

    choices = {group: choice for group in ("device", "noise") if (choice := vars(options)[group]) is not None}
    values = _values(options.set)
    program = build(options.name, choices, options.transmitters)
    if options.compile_only:
        if options.json:
            print_json({"program": str(program)})
        else:
            RESULTS.print(str(program), soft_wrap=True, markup=False)
        return 0
    graph = FlowgraphProcess(program, values, _limits(program, values))
    _require_chosen_power(graph, values)
    try:
        with graph:
            if graph.control_url:
                graph.wait_until_ready(_READY_S)
            _warn_of_noise(graph)
            _announce(graph, as_json=options.json)
            while not graph.wait(_WAIT_S):
                pass
    except KeyboardInterrupt:
        # The way to end it, not an interruption of something unfinished.
        return 0
    if graph.flowgraph.has_window and graph.exit_code == 0:
        # Its window was closed.
        return 0
    graph.require_alive()
    return 0


def _limits(program: "Path", values: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """A transmitter never gets louder than it was started with, or than it is drawn."""
    from flowgraphs.source import describe_text

    drawn = describe_text(program.with_suffix(".grc").read_text(encoding="utf-8")).parameters.get(_GAIN)
    if drawn is None:
        return {}
    return {_GAIN: (-math.inf, float(drawn.parse(values.get(_GAIN, drawn.default))))}


def _values(given: Sequence[str]) -> dict[str, str]:
    from flowgraphs.errors import FlowgraphError

    values = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals:
            raise FlowgraphError(f"--set {setting} has no value; expected PARAMETER=VALUE")
        values[name.strip()] = value.strip()
    return values


def _require_chosen_power(graph: "FlowgraphProcess", values: Mapping[str, str]) -> None:
    """A radio's power is never a default: a Pluto at 0 dB sends all it can."""
    from flowgraphs.errors import FlowgraphError

    drawn = graph.flowgraph
    if drawn.on_the_air and _GAIN in graph.parameters and _GAIN not in values:
        raise FlowgraphError(
            f"{graph.name} with device {drawn.device} sends on the air and has no power to send with; "
            "give --set tx_gain_db=DB (Pluto: -89.75 to 0, which is full power)"
        )


def _warn_of_noise(graph: "FlowgraphProcess") -> None:
    if graph.flowgraph.noise_of_its_own:
        PROGRESS.print(
            f"{graph.name}: GNU Radio's noise is not cryptographically random; no privacy may be claimed from it",
            soft_wrap=True,
        )


def _announce(graph: "FlowgraphProcess", *, as_json: bool) -> None:
    binds = {name: graph.parameters[name] for name in graph.flowgraph.binds}
    connects = {name: graph.parameters[name] for name in graph.flowgraph.connects}
    if as_json:
        print_json({"name": graph.name, "binds": binds, "connects": connects, "control": graph.control_url})
    else:
        parts = [f"binds {', '.join(f'{address} ({name})' for name, address in binds.items())}"] if binds else []
        if connects:
            parts.append(f"connects to {', '.join(f'{address} ({name})' for name, address in connects.items())}")
        if graph.control_url:
            parts.append(f"control at {graph.control_url}")
        RESULTS.print(f"{graph.name}: {'; '.join(parts)}; stop with Ctrl-C", soft_wrap=True, markup=False)
    # Whoever started this waits for this line.
    RESULTS.file.flush()
