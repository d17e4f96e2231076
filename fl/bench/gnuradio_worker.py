"""GNU Radio's side of three benchmarks: a program for the Python that has GNU Radio, started by `gnuradio_side`.

    gnuradio_worker.py modem SETTINGS    measures OFDM flowgraphs, one for each line that it reads
    gnuradio_worker.py sync SETTINGS     the same for synchronisation
    gnuradio_worker.py relay SETTINGS    a flowgraph that receives samples by ZeroMQ and sends them on

SETTINGS and the lines are JSON; each line is answered by one. The end of its input ends it. It imports nothing of
airdp, because the Python that has GNU Radio need not have what airdp needs.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TextIO

import numpy as np

SAMPLE_BYTES = 8
_LENGTH_TAG = "length"
_LOOK_AGAIN_S = 0.002
_STALLED_S = 30.0


def main(role: str, settings: Mapping[str, Any]) -> None:
    """Serve one role until the input ends."""
    answers = _own_output()
    if role in ("modem", "sync"):
        _serve_graphs(settings, answers)
    else:
        _relay(settings, answers)


def _own_output() -> TextIO:
    """The standard output for answers alone: GNU Radio logs there as well, and is sent to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _serve_graphs(settings: Mapping[str, Any], answers: TextIO) -> None:
    # First of all: GNU Radio has a thread for each block, and each inherits this.
    os.sched_setaffinity(0, {settings["core"]})
    graphs = {"modulate": transmitter, "demodulate": receiver, "synchronise": synchroniser}
    _answer(answers, {"gnuradio": import_module("gnuradio.gr").version()})
    for line in sys.stdin:
        request = json.loads(line)
        _answer(answers, _measure(*graphs[request["work"]](settings), samples=request["samples"]))


def transmitter(settings: Mapping[str, Any]) -> tuple[Any, Any, float]:
    """Allocator, inverse FFT, prefixer, as gr-digital's `ofdm_tx` has them: (graph, counted block, samples per item).

    The source repeats one packet and its length tag. It is the fastest there is: blocks that limit or tag the stream
    copy it once more each.
    """
    blocks, digital, fft = (import_module(f"gnuradio.{name}") for name in ("blocks", "digital", "fft"))
    size, prefix, carriers = settings["fft_size"], settings["cp_samples"], settings["carriers"]
    symbols, cells = settings["packet_symbols"], settings["packet_symbols"] * len(carriers)
    prefixer = digital.ofdm_cyclic_prefixer(size, size + prefix, 0, _LENGTH_TAG)
    graph = _chain(
        (blocks.vector_source_c(random_samples(cells), True, 1, [_length(cells)]), cells),
        (digital.ofdm_carrier_allocator_cvc(size, [carriers], [[]], [[]], [], _LENGTH_TAG), symbols),
        (fft.fft_vcc(size, False, [], True), symbols),
        (prefixer, symbols * (size + prefix)),
    )
    return graph, prefixer, 1.0


def receiver(settings: Mapping[str, Any]) -> tuple[Any, Any, float]:
    """Removal of the prefix, FFT, serializer, without any synchronisation: as `transmitter`, the other way."""
    blocks, digital, fft = (import_module(f"gnuradio.{name}") for name in ("blocks", "digital", "fft"))
    size, prefix, carriers = settings["fft_size"], settings["cp_samples"], settings["carriers"]
    symbols = settings["packet_symbols"]
    serializer = digital.ofdm_serializer_vcc(size, [carriers], _LENGTH_TAG)
    packet = symbols * (size + prefix)
    graph = _chain(
        (blocks.vector_source_c(random_samples(packet), True, 1, [_length(symbols)]), packet),
        (blocks.keep_m_in_n(SAMPLE_BYTES, size, size + prefix, prefix), symbols * size),
        (blocks.stream_to_vector(SAMPLE_BYTES, size), symbols),
        (fft.fft_vcc(size, True, [], True), symbols),
        (serializer, symbols * len(carriers)),
    )
    return graph, serializer, (size + prefix) / len(carriers)


def synchroniser(settings: Mapping[str, Any]) -> tuple[Any, Any, float]:
    """Detection and frequency offset as gr-digital's `ofdm_rx` has them, of a frame that the source repeats."""
    blocks, digital = (import_module(f"gnuradio.{name}") for name in ("blocks", "digital"))
    frame = np.fromfile(settings["frame_file"], np.complex64)
    source = blocks.vector_source_c(frame.tolist(), settings.get("repeat", True))
    found = digital.ofdm_sync_sc_cfb(settings["fft_size"], settings["cp_samples"])
    # A block of blocks has no counter.
    counted = blocks.copy(1)
    graph = import_module("gnuradio.gr").top_block()
    graph.connect(source, found)
    graph.connect((found, 0), blocks.null_sink(4))
    graph.connect((found, 1), counted, blocks.null_sink(1))
    return graph, counted, 1.0


def _chain(*parts: tuple[Any, int]) -> Any:
    """Blocks, each with the items of one packet at its output, connected and into nothing.

    Buffers hold two packets. With less, a block ends its thread ("Buffer too small") and the graph stands still; with
    more, the samples no longer stay in the processor's cache.
    """
    graph = import_module("gnuradio.gr").top_block()
    for block, items in parts:
        block.set_min_output_buffer(2 * items)
    sink = import_module("gnuradio.blocks").null_sink(SAMPLE_BYTES)
    graph.connect(*(block for block, _ in parts), sink)
    return graph


def _length(items: int) -> Any:
    pmt = import_module("pmt")
    tag = import_module("gnuradio.gr").tag_t()
    tag.offset, tag.key, tag.value = 0, pmt.intern(_LENGTH_TAG), pmt.from_long(items)
    return tag


def random_samples(count: int) -> list[complex]:
    """What the sources repeat: the same each time."""
    parts = np.random.default_rng(1).standard_normal((count, 2))
    made: list[complex] = (0.1 * (parts[:, 0] + 1j * parts[:, 1])).tolist()
    return made


def _measure(graph: Any, block: Any, samples_per_item: float, samples: int) -> dict[str, float]:
    """Seconds that so many samples take in the running graph, by the clock and by the processor's.

    The graph has no end; the block's counter is looked at while it runs. Starting and ending it are therefore not
    counted, in favour of GNU Radio.
    """
    wanted = samples / samples_per_item
    graph.start()
    try:
        first = wait_for(block, wanted / 10)
        clock, cpu = time.perf_counter(), time.process_time()
        items = wait_for(block, first + wanted) - first
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    finally:
        graph.stop()
        graph.wait()
    return {"wall_s": clock * wanted / items, "cpu_s": cpu * wanted / items}


def wait_for(block: Any, items: float) -> int:
    """The block's count of items once it is this large."""
    since, last = time.monotonic(), 0
    while True:
        written = int(block.nitems_written(0))
        if written >= items:
            return written
        if written != last:
            since, last = time.monotonic(), written
        if time.monotonic() - since > _STALLED_S:
            raise RuntimeError(f"the flowgraph stands still after {written} items")
        time.sleep(_LOOK_AGAIN_S)


def _relay(settings: Mapping[str, Any], answers: TextIO) -> None:
    """PULL source to PUSH sink, both with tags as all of airdp's flowgraphs have them."""
    gr, zeromq = import_module("gnuradio.gr"), import_module("gnuradio.zeromq")
    ports = {"timeout": 100, "pass_tags": True, "hwm": settings["high_water_mark"]}
    source = zeromq.pull_source(SAMPLE_BYTES, 1, settings["samples_in"], **ports)
    source.set_min_output_buffer(2 * settings["message_samples"])
    graph = gr.top_block()
    graph.connect(source, zeromq.push_sink(SAMPLE_BYTES, 1, settings["samples_out"], **ports))
    graph.start()
    _answer(answers, {"gnuradio": gr.version()})
    sys.stdin.read()
    graph.stop()
    graph.wait()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
