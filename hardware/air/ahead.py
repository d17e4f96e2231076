"""What a receiver will hear: the sum of all that was sent to it and that it has not received yet.

It is kept in pages, made when the first burst touches them.
"""

import cmath
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phy.impairments import turns_until

# A page that nothing of was received yet costs its memory, one that is too short a call.
_PAGE = 1 << 16


@dataclass
class Ahead:
    """Of one receiver, by its own count. kept_from: the first sample that it can still hear."""

    kept_from: int = 0
    _pages: dict[int, NDArray[np.complex64]] = field(default_factory=dict)

    def add(
        self, start_sample: int, samples: NDArray[np.complex64], gain: complex, cycles_per_sample: float = 0.0
    ) -> None:
        """Add gain * samples (n,) from `start_sample` on, turned by exp(j 2 pi f r) at the receiver's sample r.

        What would be heard before `kept_from` is gone.
        """
        from phy.compute.kernels import accumulate, accumulate_turning

        first, end = max(start_sample, self.kept_from), start_sample + samples.size
        while first < end:
            page, inside = divmod(first, _PAGE)
            length = min(_PAGE - inside, end - first)
            target = self._pages.get(page)
            if target is None:
                target = self._pages[page] = np.zeros(_PAGE, np.complex64)
            place = first - start_sample
            if cycles_per_sample:
                factor = gain * cmath.rect(1.0, 2.0 * math.pi * turns_until(first, cycles_per_sample))
                accumulate_turning(samples, place, length, factor, cycles_per_sample, target, inside)
            else:
                accumulate(samples, place, length, np.complex64(gain), target, inside)
            first += length

    def heard(self, count: int, start_sample: int) -> NDArray[np.complex64]:
        """A copy of what was added for these samples; zero where nothing was."""
        heard = np.zeros(count, np.complex64)
        end = start_sample + count
        for page in range(start_sample // _PAGE, (end - 1) // _PAGE + 1):
            if page in self._pages:
                origin = page * _PAGE
                low, high = max(start_sample, origin), min(end, origin + _PAGE)
                heard[low - start_sample : high - start_sample] = self._pages[page][low - origin : high - origin]
        return heard

    def forget(self) -> None:
        """Give back the pages before `kept_from`."""
        for page in [page for page in self._pages if (page + 1) * _PAGE <= self.kept_from]:
            del self._pages[page]

    def clear(self) -> None:
        """Forget everything that was added."""
        self._pages.clear()
