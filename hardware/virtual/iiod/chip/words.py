"""Words on the wire and samples in the air.

Received words are 12 bits: 2048 is full scale 1.0, and what is beyond saturates at -2048 and 2047. Words to transmit
are 16 bits, of which the converter takes the upper 12 (axi_ad9361 of ADI's HDL, and digital loopback shows it): its
full scale is word 2^15. By convention 2^14 is full scale 1.0, so samples in the air go up to 2.0. The sinks of gr-iio
take 1.0 for 2^15, which is 2.0 here.
"""

import numpy as np
from numpy.typing import NDArray

from hardware.virtual.shared_time import Samples

RX_FORMAT = "le:S12/16>>0"
TX_FORMAT = "le:S16/16>>0"
RX_FULL_SCALE_WORD = 2048
TX_FULL_SCALE_WORD = 1 << 14
TX_CONVERTER_FULL_SCALE = 32767 / TX_FULL_SCALE_WORD

Words = NDArray[np.int16]

_RX_SCALE = np.float32(RX_FULL_SCALE_WORD)
_TX_SCALE = np.float32(1.0 / TX_FULL_SCALE_WORD)
_UPPER_BITS = np.int16(-16)


def rx_words(samples: Samples) -> Words:
    """Words (n, 2), I and Q, of received samples (n,)."""
    from hardware.virtual.iiod.chip.word_loops import round_to_words

    words = np.empty((samples.size, 2), np.int16)
    round_to_words(samples.view(np.float32), _RX_SCALE, words.reshape(-1))
    return words


def as_samples(words: Words) -> Samples:
    """Words (n, 2) as complex numbers (n,), for arithmetic."""
    return np.ascontiguousarray(words, np.float32).view(np.complex64).reshape(-1)


def as_words(values: Samples) -> Words:
    """The nearest words (n, 2), of sixteen bits."""
    rounded = np.rint(np.ascontiguousarray(values).view(np.float32))
    return np.clip(rounded, -32768, 32767).astype(np.int16).reshape(-1, 2)


def looped_words(samples: Samples) -> Words:
    """Words (n, 2) that digital loopback gives for samples to transmit: the 12 upper of their 16 bits."""
    scaled = samples.view(np.float32) * np.float32(TX_FULL_SCALE_WORD / 16)
    np.floor(scaled, out=scaled)
    return scaled.astype(np.int16).reshape(-1, 2)


def tx_samples(words: Words, mask: int, out: Samples) -> None:
    """Samples (n,) into `out` from the upper bits of words (n, channels); what the mask leaves out is zero."""
    from hardware.virtual.iiod.chip.word_loops import scale_words

    target = out.view(np.float32)
    if mask == 3:
        scale_words(words.reshape(-1), _UPPER_BITS, _TX_SCALE, target)
        return
    target[...] = 0.0
    scale_words(words[:, 0], _UPPER_BITS, _TX_SCALE, target[mask - 1 :: 2])


def warm_up_words() -> None:
    """Load and compile what turns words and samples into each other, before a client waits for an answer."""
    tx_samples(rx_words(np.zeros(1, np.complex64)), 3, np.empty(1, np.complex64))
