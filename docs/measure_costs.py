"""What each measure of the radio uplink adds to the charged gain, and to the air time: `python -m docs.measure_costs`.

Prints, for the shipped simulated labs, the mean over uplinks of the largest charged gain among the clients, which noise
is sized for, and by how much it falls where one measure is left out.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import charged_gain_upper, circuits_of
from fl.nodes.coordinated import RadioRules
from fl.nodes.messages import Circuits, SoundedChannel
from fl.nodes.radio_uplink import RadioUplink
from fl.random_streams import generator
from fl.uplink.alpha_u import Fixed, PowerSettings
from fl.uplink.jammer import JammerRole, JammerSettings
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from phy.numerology import Numerology

UPLINKS = 30
CONFIDENCE = 1.0 - 2e-9
Case = Callable[[SoundedChannel, Circuits], tuple[SoundedChannel, Circuits]]

WITHOUT: dict[str, Case] = {
    "nothing left out": lambda state, circuits: (state, circuits),
    "what soundings do not explain": lambda state, circuits: (replace(state, unexplained=None), circuits),
    "the gain at a payload's level": lambda state, circuits: (replace(state, level=None), circuits),
    "the image": lambda state, circuits: (replace(state, image=None), replace(circuits, image=0.0)),
    "rounding": lambda state, circuits: (state, replace(circuits, step=None)),
}


def measure(name: str) -> dict[str, float]:
    """Mean over uplinks of the largest charged gain, by what is left out."""
    rules = RadioRules(PowerSettings(Fixed(0.01)), JammerSettings(JammerRole.NONE, 1.0), 9.0, 3, diagnosis=False)
    air = AirFormat(Numerology(), 20_000, confidence=CONFIDENCE, first_quiet_samples=2**22)
    found: dict[str, list[float]] = {case: [] for case in WITHOUT}
    lab = find_lab(name)
    with open_lab(lab, 1) as radios:
        sizes = np.full(len(lab.clients), 200)
        uplink = RadioUplink(radios, air, sizes, 1.0, rules, record_bounded=False, streams=partial(generator, 1))
        circuits = [circuits_of(radios.radios[radio.name]) for radio in lab.clients]
        for number in range(1, UPLINKS + 1):
            planned = uplink.coordinator.plan(number, 0)
            noise = planned.soundings.sigma.noise_std_real
            states = planned.soundings.states[: len(circuits)]
            for case, change in WITHOUT.items():
                charged = [
                    charged_gain_upper(*_arguments(change(state, own), air), noise)
                    for state, own in zip(states, circuits, strict=True)
                ]
                found[case].append(max(charged))
    return {case: float(np.mean(values)) for case, values in found.items()}


def _arguments(case: tuple[SoundedChannel, Circuits], air: AirFormat) -> tuple[SoundedChannel, AirFormat, Circuits]:
    return case[0], air, case[1]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    """Print the table, and the samples of an uplink."""
    for name in ("loopback", "loopback-harsh", "loopback-free-clock"):
        values = measure(name)
        whole = values.pop("nothing left out")
        _say(f"{name}: {whole:.4f} charged")
        for case, value in values.items():
            _say(f"  without {case}: {value:.4f}, {100 * (whole / value - 1):+.2f} % for it")
    air = AirFormat(Numerology(), 14_710)
    plain = replace(air, level_symbols=0)
    payload = air.payload.payload_slice.stop - air.payload.payload_slice.start
    _say(f"samples of an uplink of 14,710 coordinates and 6 transmitters: {payload + air.overhead_samples(6)}")
    _say(f"  of which symbols at a payload's level: {air.overhead_samples(6) - plain.overhead_samples(6)}")


if __name__ == "__main__":
    main()
