"""A result tree of the testbed service pos, for the scripts that are published with such trees.

The names follow what these scripts look for: https://github.com/gallenmu/pos-artifacts reads
`HOST/*_unknown_run*.loop`, `HOST/throughput_run*.log`, `HOST/histogram_run*.csv` and
`config/allocation.json`, and the plot creator of https://github.com/gallenmu/latency-limbo
`HOST/*.loop` and the result files in `HOST/data/`, whose names have the number of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tailtap.analysis.runs.run import Run
from tailtap.base.document import load
from tailtap.base.errors import naming
from tailtap.base.files import file_name, slugify
from tailtap.records.run import FCS, MOONGEN_SIZE, RATES, REPEATS
from tailtap.results.exporters.base import Common, write_text
from tailtap.results.exporters.papers import file_stem, files
from tailtap.results.importers.pos.moongen import histogram_text, throughput_text

#: The hosts of a run on one machine, and what pos calls them in published experiments.
HOSTS = {"generator": "loadgen", "timestamper": "timer", "dut": "dut"}
#: What pos calls a command that was given no name; published scripts look for it.
COMMAND = "unknown"
_STAMP = "%Y-%m-%d_%H-%M-%S_%f"


class Pos(Common):
    """`config/`, and a folder for each host with a `.loop` file for each run."""

    summary = "A result tree as the testbed service pos leaves it, with the papers' result files."
    documentation = (
        "Loop variables, result files, histograms and packets per second under the names that "
        "published scripts look for. `tailtap import` reads it back; docs/howto/pos.md shows it."
    )
    name = "pos"

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the tree into the folder `destination`."""
        tree = _Tree(Path(destination), runs)
        return [*tree.config(), *(path for run in runs for path in tree.run(run))]


@dataclass(frozen=True)
class _Tree:
    """What the files of all runs have in common."""

    folder: Path
    runs: Sequence[Run]

    @cached_property
    def hosts(self) -> dict[str, str]:
        """The host of each role: those of the testbed, else `HOSTS`."""
        testbed = self.runs[0].home / "testbed.yaml"
        told = load(testbed).data.get("roles") if testbed.is_file() else None
        given = told if isinstance(told, dict) else {}
        return {
            role: file_name(given.get(role) or host, f"{testbed}: roles.{role}")
            for role, host in HOSTS.items()
        }

    @cached_property
    def begun(self) -> datetime:
        """When the first run began; of a bare evaluation, when it was made."""
        known = [run.started for run in self.runs if run.started]
        if known:
            return min(map(datetime.fromisoformat, known)).astimezone(UTC)
        folder = self.runs[0].folder
        written = (folder / "evaluation.json").stat().st_mtime if folder else 0.0
        return datetime.fromtimestamp(written, UTC)

    @cached_property
    def numbers(self) -> dict[int, str]:
        """The digits of each run, by its place: those of pos count from 0."""
        numbers = [run.number - 1 for run in self.runs]
        if len(set(numbers)) < len(numbers) or min(numbers) < 0 or self.runs[0].origin:
            numbers = list(range(len(self.runs)))
        width = max(3, len(str(max(numbers))))
        return {
            id(run): f"{number:0{width}}" for run, number in zip(self.runs, numbers, strict=True)
        }

    def config(self) -> Iterator[str]:
        """The allocation, with the variables of the experiment."""
        name = self.runs[0].experiment or self.folder.name
        loops = [loop_of(run) for run in self.runs]
        varied: dict[str, list[Any]] = {}
        for loop in loops:
            for key, value in loop.items():
                values = varied.setdefault(key, [])
                values += [] if value in values else [value]
        # Repeats that failed are numbers of their own.
        varied[REPEATS[0]] = list(range(max(run.repeat for run in self.runs)))
        hosts = sorted(set(self.hosts.values()))
        roles = {host: [role for role, one in self.hosts.items() if one == host] for host in hosts}
        variables = {
            "loop": varied,
            "global": {
                "metadata": {"enabled": True, "title": name},
                "nodes": {host: {"role": " and ".join(roles[host])} for host in hosts},
                "experiment": _common([_asked(run) for run in self.runs]),
            },
            **{host: {"roles": roles[host]} for host in hosts},
        }
        begun = self.begun.strftime("%Y-%m-%d %H:%M:%S.%f")
        allocation = {
            "id": f"tailtap_{self.begun:%y%m%d_%H%M%S_%f}",
            "created": begun,
            "updated": begun,
            "owner": "tailtap",
            "result_folder": f"tailtap/{slugify(name)}/{self.begun.strftime(_STAMP)}",
            "variables": variables,
            "bootparameters": {host: {} for host in hosts},
            "nodes": hosts,
        }
        yield self._write("config/allocation.json", _json(allocation))
        stamp = self.begun.strftime(_STAMP)
        yield self._write(f"config/{stamp}_variables.json", _json(variables))

    def _write(self, name: str, text: str) -> str:
        return write_text(self.folder, name, text)

    def run(self, run: Run) -> Iterator[str]:
        """The files of one run."""
        digits = self.numbers[id(run)]
        evaluation = run.stored
        command = f"{self.begun.strftime(_STAMP)}_{COMMAND}_run{digits}"
        sender, timer = self.hosts["generator"], self.hosts["timestamper"]
        generator = run.record.generator if run.record else None
        said = {sender: _json(generator.whole)} if generator else {}
        doubts = "".join(f"{one.message} [{one.code}]\n" for one in run.all_warnings)
        for host in sorted(set(self.hosts.values())):
            place = f"{host}/{command}"
            yield self._write(f"{place}.loop", json.dumps(loop_of(run)))
            yield self._write(f"{place}.status", "finished")
            yield self._write(f"{place}.stdout", said.get(host, ""))
            told = doubts if host == timer else ""
            yield self._write(f"{place}.stderr", told)
        stem = file_stem(run, evaluation).replace(".pcap", f"_run{digits}.pcap", 1)
        for suffix, text in files(evaluation).items():
            yield self._write(f"{timer}/data/{stem}.{suffix}.csv", text)
        histogram = histogram_text(evaluation.distribution)
        yield self._write(f"{timer}/histogram_run{digits}.csv", histogram)
        size = run.traffic.size
        if isinstance(size, int):
            counted = {"TX": evaluation.rates("ingress"), "RX": evaluation.rates("egress")}
            with naming(str(run.folder)):
                log = throughput_text(counted, size)
            yield self._write(f"{sender}/throughput_run{digits}.log", log)


def loop_of(run: Run) -> dict[str, Any]:
    """The loop variables of a run: size and rate as MoonGen's scripts have them, then our own.

    A plot has the first of them that was not grouped by as its x axis: the rate.
    """
    size, rate = run.traffic.size, run.rate
    found: dict[str, Any] = {}
    if isinstance(size, int):
        found[MOONGEN_SIZE] = size - FCS
    if rate is not None:
        found[RATES[0]] = rate
    own = run.record.variables if run.record else {}
    return {**found, **own, REPEATS[0]: run.repeat - 1}


def _asked(run: Run) -> Mapping[str, Any]:
    return run.record.parameters.whole if run.record else {}


def _common(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all mappings say alike, at any depth."""
    first, *others = values
    found: dict[str, Any] = {}
    for key, value in first.items():
        if all(key in other and other[key] == value for other in others):
            found[key] = value
        elif isinstance(value, Mapping):
            alike = [other[key] for other in others if isinstance(other.get(key), Mapping)]
            inner = _common([value, *alike]) if len(alike) == len(others) else {}
            found |= {key: inner} if inner else {}
    return found


def _json(content: object) -> str:
    return json.dumps(content, indent=4) + "\n"
