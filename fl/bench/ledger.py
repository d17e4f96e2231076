"""A ledger of many uplinks: how long it takes to open, and what a row costs at its end."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fl.bench.measure import Measurement, compare
from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.ledger_mark import beside
from fl.privacy.ledger_rows import encode
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.random_streams import Stream, generator

UPLINKS, CLIENTS = 100_000, 50
_APPENDS = 40


def ledger(repeats: int) -> Measurement:
    """Opening with its mark, against opening without it: all rows are taken apart then."""
    with TemporaryDirectory() as name:
        few, many = Path(name) / "few.jsonl", Path(name) / "many.jsonl"
        for path, uplinks in ((few, 10), (many, UPLINKS)):
            write_ledger(path, uplinks, CLIENTS)
        # To go on with it writes the mark.
        Ledger.open(many).close()
        mark = beside(many).read_bytes()
        row_ms = {path.stem: 1e3 * _append_s(path) for path in (few, many)}
        size_mb = many.stat().st_size / 1e6

        def without() -> None:
            beside(many).unlink(missing_ok=True)
            Ledger.open(many, resumed=False).close()
            beside(many).write_bytes(mark)

        return compare(
            lambda: Ledger.open(many, resumed=False).close(),
            without,
            repeats,
            one_thread=True,
            workload=f"open a ledger of {UPLINKS:,} uplinks of {CLIENTS} clients, {size_mb:.0f} MB; processor time",
            reference="the same without its mark: every row is verified and taken apart",
            facts={"row_ms_after_10": round(row_ms["few"], 3), f"row_ms_after_{UPLINKS}": round(row_ms["many"], 3)},
        )


def write_ledger(path: Path, uplinks: int, clients: int) -> None:
    """One as `Ledger` writes it, but not row by row to the disk. Each uplink is authorised and accounted for."""
    header = LedgerHeader((200,) * clients, 1e-5, Label.CLIENT, Neighbours.ZERO_OUT, "0" * 64)
    with Ledger.create(path, header) as begun:
        head = begun.head
    line = b""
    with path.open("ab") as file:
        for seq, (kind, mechanism) in enumerate(_rows(uplinks, clients), start=1):
            fields = {"authorised_seq": seq - 1} if kind == "account" else {}
            row = {"seq": seq, "kind": kind, "time": "2026-01-01T00:00:00.000+00:00", "prev": head, **fields}
            line, head = encode({**row, "mechanism": mechanism.to_json()})
            file.write(line)
    path.with_name(path.name + ".next").write_bytes(line)


def _rows(uplinks: int, clients: int) -> Iterator[tuple[str, RoundMechanism]]:
    rng = generator(1, Stream.DATA)
    for uplink in range(1, uplinks + 1):
        mechanism = _mechanism(uplink, rng.random(clients))
        yield "authorise", mechanism
        yield "account", mechanism


def _mechanism(uplink: int, gains: np.ndarray[tuple[int], np.dtype[np.float64]]) -> RoundMechanism:
    return RoundMechanism(
        uplink=uplink,
        received_gains=tuple(gains.tolist()),
        sigma=0.05,
        sigma_origin=SigmaOrigin.MEASURED,
        record_bounded=False,
        clip_norm=1.0,
        alpha_u=0.5,
        alpha_cj=0.0,
        jammer_gain=0.0,
        noise_std_real=0.025,
        bounds=(("gains", 1e-9), ("sigma", 1e-9)),
    )


def _append_s(path: Path) -> float:
    """Processor time of a row and of the epsilon after it, in the median."""
    taken = []
    with Ledger.open(path) as opened:
        for number in range(_APPENDS):
            mechanism = _mechanism(UPLINKS + 1 + number, np.full(CLIENTS, 0.1))
            begun = time.process_time()
            opened.account(opened.authorise(mechanism), mechanism)
            _ = opened.losses
            taken.append((time.process_time() - begun) / 2)
    return statistics.median(taken)
