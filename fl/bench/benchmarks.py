"""What `airdp bench` measures, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fl.bench.clocks import clocks
from fl.bench.control_link import control_link
from fl.bench.gnuradio_side import missing_gnuradio
from fl.bench.ledger import ledger
from fl.bench.live_page import live_page
from fl.bench.measure import Measurement
from fl.bench.modem import modem
from fl.bench.paper_uplink import paper_uplink
from fl.bench.radio_uplink import radio_uplink, radio_uplink_multipath
from fl.bench.sync import sync
from fl.bench.training.cnn_round import cnn_round
from fl.bench.training.flower_round import flower_round, missing_flower
from fl.bench.training.local_round import local_round
from fl.bench.training.pfl_round import missing_pfl, pfl_round
from fl.bench.training.record_step import missing_opacus, record_step
from fl.bench.virtual_radios import missing_libiio, virtual_radios
from fl.bench.virtual_usrps import missing_uhd, virtual_usrps
from fl.bench.zeromq import zeromq


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Benchmark:
    """measure: with how many pairs. missing: what must be installed before, and how; None where it can run."""

    measure: Callable[[int], Measurement]
    missing: Callable[[], str | None] = _nothing


BENCHMARKS = {
    "local-round": Benchmark(local_round),
    "local-round-proximal": Benchmark(partial(local_round, mu=0.1)),
    "cnn-round": Benchmark(cnn_round),
    "flower-round": Benchmark(flower_round, missing_flower),
    "pfl-round": Benchmark(pfl_round, missing_pfl),
    "record-step": Benchmark(record_step, missing_opacus),
    "paper-uplink": Benchmark(paper_uplink),
    "radio-uplink": Benchmark(radio_uplink),
    "radio-uplink-multipath": Benchmark(radio_uplink_multipath),
    "live-page": Benchmark(live_page),
    "free-clocks": Benchmark(clocks),
    "ledger": Benchmark(ledger),
    "control-link": Benchmark(control_link),
    "virtual-pluto": Benchmark(virtual_radios, missing_libiio),
    "virtual-usrp": Benchmark(virtual_usrps, missing_uhd),
    "modem": Benchmark(modem, missing_gnuradio),
    "sync": Benchmark(sync, missing_gnuradio),
    "zeromq": Benchmark(zeromq, missing_gnuradio),
}
