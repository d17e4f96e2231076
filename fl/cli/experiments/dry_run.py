"""What a run would do, without doing it: what is sent, for how long, with which epsilon, and how long it will take."""

import time
from typing import TYPE_CHECKING, Any

from fl.cli.output import LABEL_NOTES, RESULTS, print_json, shown
from fl.privacy.statement import json_number

if TYPE_CHECKING:
    from fl.run.assemble import Parts
    from fl.run.config import RunConfig

_TRIED_EPOCHS = 5
"""At most, of the training that is timed; the rest of a client's epochs takes as long."""


def dry_run(config: "RunConfig", *, as_json: bool) -> int:
    """Assemble everything, open no radio, write nothing, print."""
    from fl.run.assemble import assemble

    few = min(config.local.epochs, _TRIED_EPOCHS)
    parts = assemble(config.model_copy(update={"local": config.local.model_copy(update={"epochs": few})}))
    facts = {**_plan(config, parts), **_on_the_air(config, parts), **_time(config, parts)}
    if as_json:
        numbers = {name: json_number(value) if isinstance(value, float) else value for name, value in facts.items()}
        print_json({"dry_run": True, "name": config.name, **numbers})
        return 0
    from rich.table import Table

    table = Table(show_header=False, title=f"{config.name}: nothing was sent or written", title_justify="left")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    RESULTS.print(table)
    RESULTS.print(LABEL_NOTES[config.label], soft_wrap=True)
    return 0


def _words(value: Any) -> str:
    if isinstance(value, float):
        return shown(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plan(config: "RunConfig", parts: "Parts") -> dict[str, Any]:
    from fl.run.assemble import privacy_target

    privacy, sizes = config.privacy, parts.sizes
    sized = privacy_target(config, privacy.epsilon).sigma_required(sizes)
    return {
        "clients": len(sizes),
        "training_samples": int(sizes.sum()),
        "coordinates": parts.start.size,
        "uplinks": config.last_uplink,
        "model_steps": config.last_uplink * parts.algorithm.steps_per_uplink,
        "epsilon": privacy.epsilon if config.uplink.kind != "ideal" else float("inf"),
        "epsilon_is_for": f"{config.label}, {privacy.neighbours} neighbours, delta {privacy.delta:g}, accountant "
        f"{privacy.accountant}, {config.uplink.uplinks} uplinks",
        "sigma_needed": sized,
        "jammer": str(config.jammer.role),
    }


def _on_the_air(config: "RunConfig", parts: "Parts") -> dict[str, Any]:
    """Of a run over radios: samples of an uplink, and the time that they take at the lab's rate."""
    from fl.run.assemble import radio_uplink_on

    lab = parts.inputs.lab
    if lab is None:
        return {"air": f"none: uplink.kind = '{config.uplink.kind}'"}
    air, _ = radio_uplink_on(config, lab, parts.calibration, parts.sizes, parts.start.size)
    payload = air.payload.payload_slice.stop - air.payload.payload_slice.start
    transmitters = len(lab.clients) + (lab.jammer is not None)
    whole = payload + air.overhead_samples(transmitters)
    rate = lab.sample_rate_hz
    return {
        "lab": f"{lab.name} (backend {lab.backend.name}), {transmitters} transmitters",
        "band": f"{lab.ps.settings.rx_center_hz / 1e6:g} MHz, {rate / 1e6:g} Msample/s",
        "payload_seconds_per_uplink": payload / rate,
        "sounding_seconds_per_transmitter_and_uplink": air.sounding.length / rate,
        "air_seconds_per_uplink": whole / rate,
        "air_seconds": (whole * config.last_uplink + air.first_quiet_samples) / rate,
    }


def _time(config: "RunConfig", parts: "Parts") -> dict[str, Any]:
    """Training alone, from one client of median size that is trained once, thrown away."""
    import numpy as np

    from fl.learning.settings import LocalMode
    from fl.learning.workforce import cores, single_threaded_torch
    from fl.random_streams import Stream, generator

    client = int(np.argsort(parts.sizes)[len(parts.sizes) // 2])
    work = parts.local
    with single_threaded_torch():
        for attempt in range(2):
            # The first may compile kernels.
            started = time.perf_counter()
            work.update(
                parts.start, parts.clients[client], generator(config.seed, Stream.LOCAL, 0, attempt), origin="a client"
            )
            seconds = time.perf_counter() - started
    whole = seconds * float(parts.sizes.sum()) / float(parts.sizes[client]) * config.last_uplink
    if config.local.mode is LocalMode.SGD:
        whole *= max(1.0, config.local.epochs / _TRIED_EPOCHS)
    workers = min(config.local.threads or cores(), len(parts.sizes))
    return {"training_seconds_about": whole / workers}
