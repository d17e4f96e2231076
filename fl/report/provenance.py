"""On what a study ran, and how to do it again."""

import shlex
from collections.abc import Mapping
from typing import Any

import tomli_w

from fl.report.sources import Study
from fl.run.config import RunConfig, UplinkKind, load_config, shipped_configs
from fl.sweep.plan import shipped_sweeps

_MOST_OVERRIDES = 12


def facts_of(study: Study) -> list[str]:
    """What a reader wants to know first; of the configs, what all curves share."""
    curves, trials = len(study.curves), study.planned_trials
    configs = [curve.config for curve in study.curves]
    sizes = [sum(trial.ledger.header.sizes) for curve in study.filled for trial in curve.trials]
    samples = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}–{max(sizes):,}"
    described = [
        {f"data set {config.data.set}" for config in configs},
        {f"{config.partition.clients} clients ({config.partition.kind.value})" for config in configs},
        {f"{samples} training samples"},
        {f"{config.last_uplink} uplinks" for config in configs},
        {_channel(config) for config in configs},
    ]
    return [
        f"{curves} curve{'' if curves == 1 else 's'} of {trials} trial{'' if trials == 1 else 's'}",
        *(next(iter(fact)) for fact in described if len(fact) == 1),
    ]


def _channel(config: RunConfig) -> str:
    if config.uplink.kind is UplinkKind.RADIO:
        return f"radios of lab {config.radio.lab}"
    if config.uplink.kind is UplinkKind.IDEAL:
        return "ideal uplink without noise"
    return f"{config.channel.fading.value} channel, SNR {config.channel.snr_db:g} dB"


def versions_of(study: Study) -> list[str]:
    """A sentence for each set of versions that trials ran on; one where all are the same."""
    return list(dict.fromkeys(_sentence(trial.versions) for curve in study.filled for trial in curve.trials))


def _sentence(versions: Mapping[str, Any]) -> str:
    packages = versions.get("packages")
    parts = [f"Python {versions.get('python', 'unknown')}", str(versions.get("platform", ""))]
    source = versions.get("source")
    if isinstance(source, Mapping) and "commit" in source:
        changed = ", with changes on top" if source.get("changed") else ""
        parts.append(f"commit {str(source['commit'])[:12]} of airdp{changed}")
    if isinstance(packages, Mapping):
        parts += [f"{name} {version}" for name, version in packages.items() if version]
    return ", ".join(part for part in parts if part)


def commands_of(study: Study) -> list[str]:
    """Command lines. Where one reads the folder of the report, a line before it says where it works: the page, which
    is made to be passed on, does not tell where on a machine that was."""
    folder = study.folder_name
    here = f"# in the folder that holds {folder}:"
    first = study.filled[0]
    trial = first.trials[0]
    if not study.is_sweep:
        run = f"{_run_again(trial.config, folder)} --out AGAIN"
        checks = [f"airdp ledger {folder}", f"airdp report {folder}"]
        return [here, run, *checks] if f"{folder}/config.toml" in run else [run, here, *checks]
    place = f"{folder}/{first.point.slug}/trial-{trial.number:02d}"
    again = [f"airdp sweep {study.name} --trials {study.planned_trials} --out AGAIN"] if _is_shipped(study) else []
    return [
        *again,
        here,
        f"{_run_again(trial.config, place)} --out AGAIN-1    # one trial",
        f"airdp ledger {place}",
        f"airdp report {folder}",
    ]


def _run_again(config: RunConfig, folder: str) -> str:
    """From a config that ships where few keys differ, which works anywhere; else from the run's own."""
    own = f"airdp run {shlex.quote(f'{folder}/config.toml')}"
    if config.name not in shipped_configs():
        return own
    table = config.model_dump(mode="json")
    overrides = []
    for key in load_config(config.name).differing_keys(config):
        section, _, name = key.partition(".")
        value = table[section][name] if name else table[section]
        if isinstance(value, dict):
            return own
        overrides.append(f"{key}={tomli_w.dumps({'value': value}).partition('= ')[2].strip()}")
    same = len(overrides) <= _MOST_OVERRIDES and load_config(config.name, overrides).digest() == config.digest()
    return shlex.join(["airdp", "run", config.name, *(w for o in overrides for w in ("--set", o))]) if same else own


def _is_shipped(study: Study) -> bool:
    return study.name in shipped_sweeps()
