"""What tests that need GNU Radio share: the mark that skips them without it, and a flowgraph that is one chain."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

# Looked for without importing it: that takes a second, and GNU Radio may be for another Python.
needs_gnuradio = pytest.mark.skipif(
    find_spec("gnuradio") is None,
    reason="GNU Radio is not installed: apt-get install --no-install-recommends gnuradio",
)


def through(samples: NDArray[np.complex64], *chain: Any) -> NDArray[np.complex64]:
    """What a chain of GNU Radio blocks, complex samples in and out, makes of these samples.

    The source ends, and the end travels through the chain: nothing hangs and nothing has to be timed.
    """
    from gnuradio import blocks, gr

    graph, sink = gr.top_block(), blocks.vector_sink_c()
    graph.connect(blocks.vector_source_c(samples.tolist()), *chain, sink)
    graph.run()
    return np.array(sink.data(), np.complex64)
