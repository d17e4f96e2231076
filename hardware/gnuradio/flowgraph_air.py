"""The flowgraph `air`: what a lab's [medium] section says, as the parameters of a drawing."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hardware.air.noise import Purpose, Randomness
from hardware.air.settings import medium_of
from hardware.lab.model import Lab, LabRadio, Role
from hardware.radio.settings import RadioSettings
from phy.impairments import apply_taps, fractional_delay

AIR = "air"
"""Name of the drawing."""
# Of a link whose ends are tuned to different bands.
_DEAF_DB = -400.0


class FlowgraphAir:
    """Of a lab. seed: of its noise, links and fading, which are drawn as in any simulated air.

    block: the current fading block.
    """

    def __init__(self, lab: Lab, seed: int) -> None:
        self.block = 0
        self._lab, self._medium, self._randomness = lab, medium_of(lab), Randomness(seed)
        self._settings = {radio.name: radio.settings for radio in lab.radios}

    @property
    def transmitters(self) -> list[LabRadio]:
        """In the order of the drawing's chains, which are numbered from 1."""
        return [radio for radio in self._lab.radios if radio.role is not Role.PS]

    def parameters(self, generation: int, address: Callable[[str], str]) -> dict[str, str]:
        """All of them. generation: of the flowgraphs; each has noise of its own. address: where a radio's samples are
        sent from."""
        ps = self._lab.ps.name
        seed = int(self._randomness.generator(Purpose.NOISE, ps, generation).integers(1, 1 << 30))
        parameters = {
            "sample_rate_hz": repr(self._lab.sample_rate_hz),
            "samples_out": address(AIR),
            "noise_var_complex": repr(self._medium.front_end_of(ps, self._randomness).noise_var_complex),
            "noise_seed": str(seed),
        }
        for number, radio in enumerate(self.transmitters, start=1):
            delay_samples, taps = self._link(radio)
            cfo_hz, gain_db = self._tuning(radio)
            parameters |= {
                f"samples_in_{number}": address(radio.name),
                f"delay_samples_{number}": str(delay_samples),
                f"taps_{number}": taps,
                f"cfo_hz_{number}": repr(cfo_hz),
                f"gain_db_{number}": repr(gain_db),
            }
        return parameters

    def taps(self) -> dict[str, str]:
        """The parameters that change with the fading block."""
        return {f"taps_{number}": self._link(radio)[1] for number, radio in enumerate(self.transmitters, start=1)}

    def tune(self, name: str, settings: RadioSettings) -> bool:
        """Note what a radio is tuned to; whether any carrier is now heard elsewhere than before."""
        before = [self._tuning(radio) for radio in self.transmitters]
        self._settings[name] = settings
        return before != [self._tuning(radio) for radio in self.transmitters]

    def _tuning(self, radio: LabRadio) -> tuple[float, float]:
        """Offset in Hz between a radio's carrier and the server's, and a gain in dB: whether the server hears it."""
        server = self._settings[self._lab.ps.name]
        offset_hz = self._settings[radio.name].tx_center_hz - server.rx_center_hz
        heard = abs(offset_hz) <= server.bandwidth_hz / 2
        return (offset_hz, 0.0) if heard else (0.0, _DEAF_DB)

    def _link(self, radio: LabRadio) -> tuple[int, str]:
        """Whole delay and taps of a radio's link to the server in the current block."""
        link = self._medium.link_of(radio.name, self._randomness, self._lab.ps.name)
        rng = self._randomness.generator(Purpose.FADING, radio.name, self._lab.ps.name, self.block)
        whole = int(link.delay_samples)
        taps = _delayed(link.fading.taps(self.block, rng), link.delay_samples - whole)
        return whole, ",".join(str(complex(tap)) for tap in taps)


def _delayed(taps: NDArray[np.complex128], fraction: float) -> NDArray[np.complex64]:
    """Taps after a delay by a part of a sample, which begins with the filter's look-ahead."""
    impulse = np.ones(1, np.complex64)
    return apply_taps(fractional_delay(impulse, fraction)[0], taps.astype(np.complex64))
