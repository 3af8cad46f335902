"""Runs that say on which machine they were made, and what ran where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment_folders import write_run
from made_records import rewrite, wiring
from scratch_machine import unpacked

from tailtap.base.units import ranges
from tailtap.experiment.model import Experiment
from tailtap.host.facts import environment
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import apply, audit, plan
from tailtap.measure.roles.foresee import record
from tailtap.records.record import as_json


def recorded(name: str, folder: Path) -> dict[str, Any]:
    return as_json(environment.describe(unpacked(name, folder)))


def large() -> dict[str, Any]:
    """An environment that is made up: two sockets of 32 cores with two threads each."""

    def core(number: int) -> str:
        return f"{number},{number + 64}"

    sockets = ["0-31,64-95", "32-63,96-127"]
    own = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K")]
    caches = [
        {"level": level, "type": kind, "size": size, "cpus": core(number)}
        for level, kind, size in own
        for number in range(64)
    ]
    caches += [
        {"level": "3", "type": "Unified", "size": "61440K", "cpus": cpus} for cpus in sockets
    ]
    nics = [
        {"name": name, "driver": "ice", "numa_node": node, "interrupts": []}
        for name, node in (("eno1", 0), ("ens1f0", 0), ("ens1f1", 0), ("ens5f0", 1), ("ens5f1", 1))
    ]
    return {
        "hostname": "large",
        "kernel": {"release": "6.12.0"},
        "cpu": {"online": "0-127", "isolated": "2-7", "nohz_full": "2-7"},
        "topology": {
            "cores": [core(number) for number in range(64)],
            "packages": sockets,
            "caches": caches,
            "numa_nodes": {"0": sockets[0], "1": sockets[1]},
            "node_memory": {"0": 256 << 30, "1": 256 << 30},
            "node_distances": {"0": [10, 21], "1": [21, 10]},
        },
        "interrupts": {},
        "nics": nics,
    }


def placed_run(
    folder: Path,
    number: int,
    surroundings: dict[str, Any],
    *,
    dut: Sequence[int],
    generator: int,
    taps: Sequence[int],
    ports: tuple[Sequence[str], Sequence[str]] | None = None,
    platform: str = "bare-metal",
    variables: dict[str, str] | None = None,
    **more: Any,
) -> Path:
    """A run that was made there: with network cards as `ports` of DuT and taps.

    `more` are keys of its record.
    """
    run = write_run(folder, number, {"dut.platform": platform, **(variables or {})}, packets=2_000)
    parameters = json.loads((run / "run.json").read_text())["parameters"]
    parameters["dut"]["cpus"] = list(dut)
    parameters["traffic"]["cpu"] = generator
    cards = {} if ports is None else {"ports": list(ports[0])}
    experiment = Experiment.model_validate(
        {
            "name": "placed",
            "dut": {"platform": platform, "cpus": list(dut), **cards},
            "traffic": {"cpu": generator},
            "tap": {} if ports is None else {"ports": list(ports[1])},
        }
    )
    changes = {
        "parameters": parameters,
        **wiring(experiment.graph()),
        "instruments": {"taps": {"facts": ["taps"], "files": [], "cpus": ranges(taps)}},
        "environment": surroundings,
        **more,
    }
    rewrite(run / "run.json", **changes)
    return run


ABLATED = ["stat-interval", "soft-watchdog", "hung-task"]


def tuned(folder: Path, knobs: Sequence[str], *, role: str = "bare-metal") -> dict[str, Any]:
    """What a run stores of a recorded machine in `folder` on which `knobs` were set."""
    tree = Tree(unpacked("cloud-vm", folder))
    purpose = Purpose.of(tree, role, [1], [0], [])
    before: dict[str, str | None] = {}
    if knobs:
        wanted = plan(tree, purpose, knobs)
        before = {change.knob.name: change.before.value for change in wanted.changes}
        apply(wanted, folder / "journals")
    return as_json(record(audit(tree, purpose), before, {}))


def write_ablation(folder: Path) -> Path:
    """Five runs: with all of `ABLATED` set, with all but one each, with none."""
    there = recorded("cloud-vm", folder / "machine")
    values = {
        "runtime": ABLATED,
        **{f"without {name}": [k for k in ABLATED if k != name] for name in ABLATED},
        "none": [],
    }
    for number, (value, knobs) in enumerate(values.items(), 1):
        told = tuned(folder / f"tuned-{number}", knobs)
        placed_run(folder, number, there, variables={"dut.tuning": value}, dut=[1], generator=0,
                   taps=[0], tuning=told)  # fmt: skip
    return folder
