"""Short payloads in the format of a run, for attacks that do not take long."""

from dataclasses import replace

from fl.nodes.air_format import AirFormat
from fl.run.assemble import air_format
from fl.run.config import parse_config
from hardware.lab.file import find_lab


def short_format(lab: str, symbols: int = 1, first_quiet_samples: int = 2**21) -> AirFormat:
    """With so many symbols of coordinates."""
    found = find_lab(lab)
    config = parse_config({"uplink": {"kind": "radio"}, "partition": {"clients": len(found.clients)}})
    air = air_format(config, found, coordinates=1)
    coordinates = symbols * air.numerology.coordinates_per_symbol
    return replace(air, coordinates=coordinates, first_quiet_samples=first_quiet_samples)
