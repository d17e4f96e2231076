"""What a run would do, without doing it: what is sent, for how long, with which epsilon, and how long it will take."""

import time
from typing import TYPE_CHECKING, Any

from fl.cli.output import LABEL_NOTES, RESULTS, print_json, shown
from fl.privacy.statement import json_number

if TYPE_CHECKING:
    from fl.nodes.coordinated import CoordinatedUplink
    from fl.privacy.clipping import BoundedUpdate
    from fl.run.assemble import Parts
    from fl.run.config import RunConfig
    from fl.uplink.contract import UplinkPlan
    from hardware.lab.opened import OpenLab

_TRIED_EPOCHS = 5
"""At most, of the training that is timed; the rest of a client's epochs takes as long."""
_TRIED_UPLINKS = 3


def dry_run(config: "RunConfig", *, as_json: bool) -> int:
    """Assemble everything, open no radio that is more than memory of this process, write nothing, print."""
    from fl.run.assemble import assemble

    few = min(config.local.epochs, _TRIED_EPOCHS)
    parts = assemble(config.model_copy(update={"local": config.local.model_copy(update={"epochs": few})}))
    air = _on_the_air(config, parts)
    facts = {**_plan(config, parts), **air, **_time(config, parts, air.get("air_seconds", 0.0))}
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


def _time(config: "RunConfig", parts: "Parts", air_s: float) -> dict[str, Any]:
    """Of the whole run. Where its time is simulated, or there is no radio, an uplink is tried and thrown away.

    air_s: on the air, which is the least that radios take whose time cannot be simulated.
    """
    training_s = _tried_training(config, parts)
    lab, uplinks = parts.inputs.lab, config.last_uplink
    if lab is not None and not lab.traits.virtual_time:
        return {"training_seconds_about": training_s, "run_seconds_at_least": training_s + air_s}
    first_s, each_s = _tried_uplinks(config, parts)
    whole_s = training_s + first_s + (uplinks - 1) * each_s + uplinks * _tried_evaluation(parts)
    return {"training_seconds_about": training_s, "run_seconds_about": whole_s}


def _tried_training(config: "RunConfig", parts: "Parts") -> float:
    """In all uplinks, from one client of median size that is trained once, thrown away."""
    import numpy as np

    from fl.learning.settings import LocalMode
    from fl.learning.workforce import cores, single_threaded_torch
    from fl.random_streams import Stream, generator

    client = int(np.argsort(parts.sizes)[len(parts.sizes) // 2])
    with single_threaded_torch():
        for attempt in range(2):
            # The first may compile kernels.
            started = time.perf_counter()
            rng = generator(config.seed, Stream.LOCAL, 0, attempt)
            parts.local.update(parts.start, parts.clients[client], rng, origin="a client")
            seconds = time.perf_counter() - started
    whole = seconds * float(parts.sizes.sum()) / float(parts.sizes[client]) * config.last_uplink
    if config.local.mode is LocalMode.SGD:
        whole *= max(1.0, config.local.epochs / _TRIED_EPOCHS)
    return whole / min(config.local.threads or cores(), len(parts.sizes))


class _Nobody:
    """Looks on at a tried uplink, and writes nothing."""

    def tap(self, lab: "OpenLab") -> None:
        """See `Onlooker`."""

    def attach(self, uplink: "CoordinatedUplink") -> None:
        """See `Onlooker`."""


def _stand_in(config: "RunConfig", parts: "Parts", client: int) -> "BoundedUpdate":
    """What takes as long to send as an update does."""
    import numpy as np

    from fl.learning.settings import LocalMode
    from fl.privacy.clipping import clip_update, mean_of_clipped

    norm = config.privacy.clip_norm
    values = np.full(parts.start.size, norm / (2 * np.sqrt(parts.start.size)), np.float32)
    if config.local.mode is LocalMode.RECORD:
        return mean_of_clipped(values, int(parts.sizes[client]), norm)
    return clip_update(values, norm, origin="a stand-in")


def _tried_uplinks(config: "RunConfig", parts: "Parts") -> tuple[float, float]:
    """Seconds of the first uplink, with all that comes before it, and of each later one."""
    from fl.uplink.attempts import attempt_uplink

    took = []
    started = time.perf_counter()
    with parts.open_uplink(_Nobody()) as uplink:
        uplink.started("")

        def carry(plan: "UplinkPlan") -> None:
            updates = ((client, _stand_in(config, parts, client)) for client in plan.senders)
            aggregate = uplink.exchange(plan, updates, lambda: None)
            uplink.settled(aggregate.mechanism)

        for number in range(1, 1 + min(_TRIED_UPLINKS, config.last_uplink)):
            attempt_uplink(uplink, number, config.radio.attempts, carry)
            took.append(time.perf_counter() - started)
            started = time.perf_counter()
    return took[0], sum(took[1:]) / max(1, len(took) - 1)


def _tried_evaluation(parts: "Parts") -> float:
    """Seconds that scoring a model takes."""
    started = time.perf_counter()
    for data in (parts.train, parts.test):
        parts.scores(parts.start, data)
    return time.perf_counter() - started
