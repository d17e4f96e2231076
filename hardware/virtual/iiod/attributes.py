"""Devices, channels and attributes as a client of the IIO protocol sees them, and the XML that lists them.

An attribute is text that can be read, written or both. Names are those of a Pluto; the file name is that of the real
sysfs file, by which some clients look attributes up.
"""

import errno
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from xml.sax.saxutils import quoteattr

from hardware.virtual.iiod.refusal import RefusalError, invalid

# What the kernel takes for a number with decimals: no exponent, and "dB" may follow.
_DECIMAL = re.compile(r"[+-]?\d{1,18}(\.\d{0,18})?( ?dB)?")
_WHOLE = re.compile(r"[+-]?\d{1,18}")


Number = TypeVar("Number", int, float)
Read = Callable[[], str]
Write = Callable[[str], None]
Entry = tuple[str, Read | None, Write | None]
"""An attribute's name, and how it is read and written; see `Attribute`."""

# Clients validate what they parse, and complain where there is nothing to validate against.
_DTD = (
    "<!DOCTYPE context ["
    "<!ELEMENT context (device | context-attribute)*><!ELEMENT context-attribute EMPTY>"
    "<!ELEMENT device (channel | attribute | debug-attribute | buffer-attribute)*>"
    "<!ELEMENT channel (scan-element?, attribute*)><!ELEMENT attribute EMPTY><!ELEMENT scan-element EMPTY>"
    "<!ELEMENT debug-attribute EMPTY><!ELEMENT buffer-attribute EMPTY>"
    "<!ATTLIST context name CDATA #REQUIRED version-major CDATA #REQUIRED version-minor CDATA #REQUIRED"
    " version-git CDATA #REQUIRED description CDATA #IMPLIED>"
    "<!ATTLIST context-attribute name CDATA #REQUIRED value CDATA #REQUIRED>"
    "<!ATTLIST device id CDATA #REQUIRED name CDATA #IMPLIED>"
    "<!ATTLIST channel id CDATA #REQUIRED type (input|output) #REQUIRED name CDATA #IMPLIED>"
    "<!ATTLIST scan-element index CDATA #REQUIRED format CDATA #REQUIRED scale CDATA #IMPLIED>"
    "<!ATTLIST attribute name CDATA #REQUIRED filename CDATA #IMPLIED>"
    "<!ATTLIST debug-attribute name CDATA #REQUIRED><!ATTLIST buffer-attribute name CDATA #REQUIRED>"
    "]>"
)


@dataclass(frozen=True)
class Attribute:
    """One attribute. Without `write` it is read-only, without `read` write-only; both are then refused with EACCES."""

    name: str
    read: Read | None = None
    write: Write | None = None
    filename: str = ""

    def get(self) -> str:
        """Its value."""
        if self.read is None:
            raise RefusalError(errno.EACCES, f"{self.name} cannot be read")
        return self.read()

    def set(self, value: str) -> None:
        """Write `value`; `RefusalError` where it is not possible, and then nothing has changed."""
        if self.write is None:
            raise RefusalError(errno.EACCES, f"{self.name} cannot be written")
        self.write(value)


def named(prefix: str, entries: Iterable[Entry]) -> list[Attribute]:
    """Attributes whose file names are `prefix` and their own name."""
    return [Attribute(name, read, write, f"{prefix}_{name}") for name, read, write in entries]


def span(low: float, step: float, high: float, digits: int = 0) -> Read:
    """What an attribute says of the numbers that another one takes."""
    return lambda: f"[{low:.{digits}f} {step:.{digits}f} {high:.{digits}f}]"


def _by_name(attributes: Iterable[Attribute]) -> dict[str, Attribute]:
    return {attribute.name: attribute for attribute in attributes}


@dataclass(frozen=True)
class Channel:
    """One channel. scan_format: of its samples in a buffer, where it can stream."""

    id: str
    output: bool
    attributes: Sequence[Attribute]
    name: str = ""
    scan_format: str = ""

    def attribute(self, name: str) -> Attribute:
        """The attribute `name`; `RefusalError` with ENOENT where there is none."""
        return _found(_by_name(self.attributes), name)


@dataclass(frozen=True)
class Device:
    """One device. Channels that stream come first: a mask numbers channels in the order of the list."""

    id: str
    name: str
    channels: Sequence[Channel]
    attributes: Sequence[Attribute] = ()
    debug_attributes: Sequence[Attribute] = ()
    buffer_attributes: Sequence[Attribute] = ()
    kinds: Mapping[str, Mapping[str, Attribute]] = field(init=False)

    def __post_init__(self) -> None:
        """Index the attributes by kind ("", "DEBUG", "BUFFER") and name."""
        kinds = {"": self.attributes, "DEBUG": self.debug_attributes, "BUFFER": self.buffer_attributes}
        object.__setattr__(self, "kinds", {kind: _by_name(attributes) for kind, attributes in kinds.items()})

    @property
    def streams(self) -> bool:
        """Whether a buffer of it can be opened."""
        return any(channel.scan_format for channel in self.channels)

    def attribute(self, kind: str, name: str) -> Attribute:
        """The attribute `name` of a kind; `RefusalError` with ENOENT where there is none."""
        return _found(self.kinds[kind], name)

    def channel(self, name: str, output: bool) -> Channel:
        """The channel with this identifier or name; `RefusalError` with ENXIO where there is none."""
        for channel in self.channels:
            if channel.output is output and name in (channel.id, channel.name):
                return channel
        raise RefusalError(errno.ENXIO, f"{self.name} has no channel {name}")


def _found(attributes: Mapping[str, Attribute], name: str) -> Attribute:
    try:
        return attributes[name]
    except KeyError:
        raise RefusalError(errno.ENOENT, f"there is no attribute {name}") from None


def whole(value: str, bounds: tuple[int, int]) -> int:
    """A whole number within bounds, both included."""
    text = value.strip()
    if not _WHOLE.fullmatch(text):
        raise invalid(f"{text!r} is not a whole number")
    return _within(int(text), bounds)


def decimal(value: str, bounds: tuple[float, float]) -> float:
    """A number within bounds, both included."""
    text = value.strip()
    if not _DECIMAL.fullmatch(text):
        raise invalid(f"{text!r} is not a number")
    return _within(float(text.removesuffix("dB")), bounds)


def _within(number: Number, bounds: tuple[Number, Number]) -> Number:
    low, high = bounds
    if not low <= number <= high:
        raise invalid(f"{number} is not within {low} and {high}")
    return number


def flag(value: str) -> bool:
    """A switch as the kernel takes it: 1, y, on, or 0, n, off."""
    text = value.strip().lower()
    if text in {"1", "y", "yes", "on"}:
        return True
    if text in {"0", "n", "no", "off"}:
        return False
    raise invalid(f"{text!r} is not 0 or 1")


def choice(value: str, options: Sequence[str]) -> str:
    """One of `options`."""
    text = value.strip()
    if text not in options:
        raise invalid(f"{text!r} is not one of {' '.join(options)}")
    return text


def context_xml(devices: Sequence[Device], context_attributes: Mapping[str, str], description: str) -> str:
    """The context as libiio 0.2x describes it."""
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        _DTD,
        f'<context name="network" version-major="0" version-minor="24" version-git="v0.24" '
        f"description={quoteattr(description)}>",
    ]
    parts += [
        f"<context-attribute name={quoteattr(name)} value={quoteattr(value)} />"
        for name, value in context_attributes.items()
    ]
    for device in devices:
        parts.append(f"<device id={quoteattr(device.id)} name={quoteattr(device.name)}>")
        index = 0
        for channel in device.channels:
            name = f" name={quoteattr(channel.name)}" if channel.name else ""
            parts.append(f'<channel id="{channel.id}"{name} type="{"output" if channel.output else "input"}">')
            if channel.scan_format:
                parts.append(f'<scan-element index="{index}" format={quoteattr(channel.scan_format)} />')
                index += 1
            parts += [
                f"<attribute name={quoteattr(attribute.name)} filename={quoteattr(attribute.filename)} />"
                for attribute in channel.attributes
            ]
            parts.append("</channel>")
        for tag, attributes in (
            ("attribute", device.attributes),
            ("debug-attribute", device.debug_attributes),
            ("buffer-attribute", device.buffer_attributes),
        ):
            parts += [f"<{tag} name={quoteattr(attribute.name)} />" for attribute in attributes]
        parts.append("</device>")
    parts.append("</context>")
    return "".join(parts)
