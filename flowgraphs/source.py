"""The flowgraphs as drawn, and variants of them: another device, another number of transmitters.

The files are never changed. A variant is the text of a changed copy.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from flowgraphs.errors import FlowgraphError, UnknownNameError
from flowgraphs.parameters import Kind, Parameter

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.grc")))
GROUPS = ("device", "noise")
NO_CHOICES: Mapping[str, str] = MappingProxyType({})

_ADDER = "summation"
# Choices of the two groups.
_NO_DEVICE, _HOST = "zeromq", "host"
_KINDS = {"str": Kind.TEXT, "intx": Kind.INTEGER, "eng_float": Kind.REAL}
_NOT_DRAWN_TWICE = ("parameter", "variable", "note")

# A flowgraph as YAML has it.
Graph = dict[str, Any]


@dataclass(frozen=True)
class Flowgraph:
    """What can be said about a graph without compiling it.

    choices: by group, the one that is enabled first. transmitters: number of chains, None where there are none.
    binds, connects: parameters that are addresses at which it listens, or at which somebody else does.
    """

    name: str
    title: str
    description: str
    has_window: bool
    choices: Mapping[str, tuple[str, ...]]
    transmitters: int | None
    parameters: Mapping[str, Parameter]
    binds: tuple[str, ...]
    connects: tuple[str, ...]

    @property
    def device(self) -> str:
        """What it sends and receives through; empty where it has no such choice."""
        return self.choices.get("device", ("",))[0]

    @property
    def on_the_air(self) -> bool:
        """Whether that is a radio."""
        return self.device not in ("", _NO_DEVICE)

    @property
    def noise_of_its_own(self) -> bool:
        """Whether it makes the noise that it sends by itself, which is not cryptographically random."""
        return self.choices.get("noise", (_HOST,))[0] != _HOST


def source_file(name: str) -> Path:
    """Where a graph is drawn."""
    if name not in NAMES:
        raise UnknownNameError("flowgraph", name, NAMES)
    return FOLDER / f"{name}.grc"


def describe(name: str) -> Flowgraph:
    """A graph as it is drawn."""
    return describe_text(source_file(name).read_text(encoding="utf-8"))


def describe_text(text: str) -> Flowgraph:
    """A graph, given as the text of its file: a drawn one or a variant."""
    graph: Graph = yaml.safe_load(text)
    options = graph["options"]["parameters"]
    return Flowgraph(
        name=options["id"],
        title=options["title"],
        description=options["description"],
        has_window=options["generate_options"] == "qt_gui",
        choices=MappingProxyType({group: drawn for group in GROUPS if (drawn := _choices(graph, group))}),
        transmitters=_transmitters(graph) or None,
        parameters=MappingProxyType(dict(_parameters(graph))),
        binds=tuple(_addresses(graph, "sink")),
        connects=tuple(_addresses(graph, "source")),
    )


def variant(name: str, choices: Mapping[str, str] = NO_CHOICES, transmitters: int | None = None) -> str:
    """The text of a graph with these choices enabled instead of others, and with this many transmitters.

    What is not given stays as it is drawn.
    """
    graph: Graph = yaml.safe_load(source_file(name).read_text(encoding="utf-8"))
    for group, choice in choices.items():
        _choose(graph, name, group, choice)
    if transmitters is not None:
        _set_transmitters(graph, name, transmitters)
    text: str = yaml.safe_dump(graph, sort_keys=False, allow_unicode=True)
    return text


def _parameters(graph: Graph) -> Iterable[tuple[str, Parameter]]:
    for block in graph["blocks"]:
        if block["id"] == "parameter":
            drawn = block["parameters"]
            yield block["name"], Parameter(block["name"], drawn["label"], _KINDS[drawn["type"]], str(drawn["value"]))


def _addresses(graph: Graph, end: str) -> Iterable[str]:
    """Parameters that are addresses of ZeroMQ blocks: those that are enabled, for the others do nothing."""
    for block in graph["blocks"]:
        if re.fullmatch(rf"zeromq_[a-z]+_{end}", block["id"]) and block["states"]["state"] == "enabled":
            yield block["parameters"]["address"]


def _alternatives(graph: Graph, group: str) -> Iterable[tuple[str, Graph]]:
    """Each block of a group, with the choice it belongs to."""
    for block in graph["blocks"]:
        named = re.match(rf"{group}_([a-z]+)_", block["name"])
        if named and block["id"] not in _NOT_DRAWN_TWICE:
            yield named[1], block


def _choices(graph: Graph, group: str) -> tuple[str, ...]:
    enabled = {choice: block["states"]["state"] == "enabled" for choice, block in _alternatives(graph, group)}
    return tuple(sorted(enabled, key=lambda choice: (not enabled[choice], choice)))


def _choose(graph: Graph, name: str, group: str, choice: str) -> None:
    drawn = _choices(graph, group)
    if not drawn:
        offered = [known for known in GROUPS if _choices(graph, known)]
        raise UnknownNameError("choice", group, offered, of=name)
    if choice not in drawn:
        raise UnknownNameError(group, choice, drawn, of=name)
    for belongs_to, block in _alternatives(graph, group):
        block["states"]["state"] = "enabled" if belongs_to == choice else "disabled"


def _chain(graph: Graph, number: int) -> list[Graph]:
    return [block for block in graph["blocks"] if block["name"].endswith(f"_{number}")]


def _transmitters(graph: Graph) -> int:
    number = 0
    while _chain(graph, number + 1):
        number += 1
    return number


def _set_transmitters(graph: Graph, name: str, wanted: int) -> None:
    drawn = _transmitters(graph)
    if not drawn:
        raise FlowgraphError(f"{name} has no chains of transmitters to multiply; leave the number of transmitters out")
    if wanted < 1:
        raise FlowgraphError(f"{wanted} transmitters were asked of {name}; expected 1 or more")
    for number in range(wanted + 1, drawn + 1):
        dropped = {block["name"] for block in _chain(graph, number)}
        graph["blocks"] = [block for block in graph["blocks"] if block["name"] not in dropped]
        graph["connections"] = [link for link in graph["connections"] if not dropped & {link[0], link[2]}]
    for number in range(drawn + 1, wanted + 1):
        _clone_chain(graph, number)
    adder = next(block for block in graph["blocks"] if block["name"] == _ADDER)
    # Its input 0 is the receiver's noise, input k is transmitter k.
    adder["parameters"]["num_inputs"] = str(wanted + 1)


def _clone_chain(graph: Graph, number: int) -> None:
    """Add chain `number`, made from chain 1 and drawn as far below it as the chains are apart."""
    first, second = _chain(graph, 1), _chain(graph, 2)
    names = {block["name"] for block in first}
    inside = re.compile(rf"\b({'|'.join(name.removesuffix('_1') for name in names)})_1\b")
    height = second[0]["states"]["coordinate"][1] - first[0]["states"]["coordinate"][1]

    def renumbered(text: str) -> str:
        return inside.sub(rf"\g<1>_{number}", text).replace("ransmitter 1", f"ransmitter {number}")

    for block in first:
        clone = copy.deepcopy(block)
        clone["name"] = renumbered(block["name"])
        clone["parameters"] = {key: renumbered(value) for key, value in block["parameters"].items()}
        if "value" in clone["parameters"]:
            clone["parameters"]["value"] = _moved_on(clone["parameters"]["value"], number - 1)
        clone["states"]["coordinate"][1] += (number - 1) * height
        graph["blocks"].append(clone)
    for source, output, sink, entry in list(graph["connections"]):
        if source in names or sink in names:
            port = str(number) if sink == _ADDER else entry
            graph["connections"].append([renumbered(source), output, renumbered(sink), port])


def _moved_on(value: str, step: int) -> str:
    """An address with a port further on, so that no two chains have the same; anything else as it is."""
    return re.sub(r"(?<=:)\d+$", lambda port: str(int(port[0]) + step), value)
