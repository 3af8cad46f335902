"""The runs of a result tree: which loop runs belong together, and what results they have.

`tree.py` finds trees, the `.loop` files of their hosts, and what a crate says of the experiment;
`variables.py` knows what loop variables mean, and what is known of hosts; `moongen.py` reads what
the load generator leaves.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tailtap.analysis.evaluation import Evaluation
from tailtap.base.foreign import TABLE_BYTES, open_file, read_bytes, storable
from tailtap.base.units import format_time
from tailtap.records.interrupts import TIME
from tailtap.records.printed import ImportedTree
from tailtap.records.record import Notice
from tailtap.records.run import RunRecord
from tailtap.results.importers.importable import Content, record_of, sampled
from tailtap.results.importers.pos.moongen import (
    BUCKET_NS,
    HISTOGRAM,
    THROUGHPUT,
    partial_of,
    read_histogram,
    read_totals,
    with_totals,
)
from tailtap.results.importers.pos.tree import (
    CRATE,
    Crate,
    Files,
    Loop,
    command_name,
    find_trees,
    read_crate,
)
from tailtap.results.importers.pos.variables import TRIM, Variables, hosts_of
from tailtap.results.importers.published import MILLISECOND_NS, PublishedRun

MOST_HEAD = 1 << 20
"""Bytes of a line with the names of counters: there are some for each CPU."""
_NAMED = 5
"""So many files or runs are named in a warning; the rest is counted."""


@dataclass
class Measurement:
    """Commands that hosts executed side by side, in the same loop over the same variables."""

    loops: dict[str, dict[int, Loop]] = field(default_factory=dict)
    """For each host its loop runs by their number."""

    def takes(self, host: str, loops: Mapping[int, Loop]) -> bool:
        """Whether these loop runs of a host are of the same runs."""
        if host in self.loops:
            return False
        known = {number: loop for other in self.loops.values() for number, loop in other.items()}
        common = known.keys() & loops.keys()
        return bool(common) and all(
            known[number].variables == loops[number].variables for number in common
        )

    @property
    def numbers(self) -> list[int]:
        """The numbers of its runs."""
        return sorted({number for loops in self.loops.values() for number in loops})

    @property
    def name(self) -> str:
        """The names of its commands."""
        names = {command_name(next(iter(loops.values())).command) for loops in self.loops.values()}
        return " and ".join(sorted(names))


@dataclass
class PosTree:
    """A result tree, and its runs."""

    files: Files
    top: Path
    published: Sequence[PublishedRun]
    crate: Crate | None = None

    @property
    def root(self) -> Path:
        """Its folder."""
        return self.files.root

    @property
    def warnings(self) -> list[Notice]:
        """What is wrong with the tree. The first run has them."""
        return self.files.warnings

    @property
    def taken(self) -> set[str]:
        """The sources of the published runs that are runs of the tree."""
        return {run.results.published.source for run in self.runs if run.results.published}

    @property
    def summary(self) -> ImportedTree:
        """It in a few words."""
        crate = self.crate
        names = dict.fromkeys(name for run in self.runs for name in run.loop_variables)
        loops = sum(len(loops) for one in self.measurements for loops in one.loops.values())
        return ImportedTree(
            name=self.name,
            folder=str(self.root),
            kind="result tree of pos" if crate is None else "RISE crate",
            runs=len(self.runs),
            loop_runs=loops,
            variables=list(names),
            hosts=self.hosts,
            authors=[] if crate is None else list(crate.authors),
            licence=None if crate is None else crate.licence,
            identifiers=[] if crate is None else list(crate.identifiers),
        )

    @cached_property
    def name(self) -> str:
        """What the experiment is called: by its crate, by its variables, else by its folder."""
        shared = self.files.variables.get("global")
        about = shared.get("metadata") if isinstance(shared, dict) else None
        title = about.get("title") if isinstance(about, dict) else None
        return (self.crate.name if self.crate else "") or str(title or "") or self.root.name

    @cached_property
    def hosts(self) -> list[str]:
        """The hosts that took part, in alphabetical order."""
        nodes = self.files.allocation.get("nodes")
        named = [str(node) for node in nodes] if isinstance(nodes, list) else []
        return sorted({*named, *(loop.host for loop in self.files.loops)})

    @cached_property
    def measurements(self) -> list[Measurement]:
        """What was measured, in the order of time."""
        commands: dict[tuple[str, str], dict[int, Loop]] = {}
        for loop in self.files.loops:
            commands.setdefault((loop.command, loop.host), {})[loop.number] = loop
        found: list[Measurement] = []
        for (_, host), loops in commands.items():
            home = next((one for one in found if one.takes(host, loops)), None)
            if home is None:
                home = Measurement()
                found.append(home)
            home.loops[host] = loops
        return found

    @cached_property
    def runs(self) -> list[PosRun]:
        """All runs, by measurement and number; one for each trim of its result files."""
        measurements = self.measurements
        shared = [number for one in measurements for number in one.numbers]
        if len(set(shared)) < len(shared) and self.files.by_number:
            self._warning(
                "loop-shared",
                f"{self.root}: {len(measurements)} loops number their runs alike "
                f"({', '.join(one.name for one in measurements)}): files of a run were taken as "
                "the first loop's; remove the other loops' .loop files to be sure",
            )
        description = self._description()
        found: list[PosRun] = []
        used: set[int] = set()
        for measurement in measurements:
            name = measurement.name if len(measurements) > 1 else ""
            variables = Variables.of(measurement.loops.values(), self.files.variables)
            for number in measurement.numbers:
                loops = [of[number] for of in measurement.loops.values() if number in of]
                files = [] if number in used else self.files.by_number.get(number, [])
                used.add(number)
                found += [
                    PosRun(loops, variables, description, one, name, variables.repeat(loops[0]))
                    for one in self._results(loops[0], variables, files)
                ]
        _number_repeats(found)
        self._look_over(found)
        return found

    def _description(self) -> Description:
        crate = self.crate
        allocation = self.files.allocation
        known = {key: allocation[key] for key in ("id", "created") if key in allocation}
        place = self.root.relative_to(self.top).as_posix()
        return Description(
            name=self.name,
            root=self.root,
            place="" if place == "." else place,
            allocation=known,
            crate=crate,
            hosts=hosts_of(self.files, self.hosts),
        )

    def _results(self, loop: Loop, variables: Variables, files: list[Path]) -> list[Results]:
        """The results of one run, the best kind that it has; one without any is empty."""
        own = [path for path in files if not path.name.startswith(loop.command)
               and path.suffix not in (".loop", ".status", ".stdout", ".stderr")
               and path.relative_to(self.root).parts[0] != "config"]  # fmt: skip
        inside = set(own)
        rate, repeat = variables.rate(loop), variables.repeat(loop)
        published = [
            run for run in self.published
            if inside.intersection(run.all_files)
            or (rate is not None and run.rate == rate and run.repeat == repeat
                and self._unnumbered(run))
        ]  # fmt: skip
        one = Results(
            histogram=next((path for path in own if HISTOGRAM.fullmatch(path.name)), None),
            throughput=next((path for path in own if THROUGHPUT.fullmatch(path.name)), None),
            samples=next((path for path in own if self._are_samples(path)), None),
            files=tuple(own),
        )
        return [replace(one, published=run) for run in published] or [one]

    def _are_samples(self, path: Path) -> bool:
        """Whether a file is one of the interrupt recorder, by its first line."""
        if not re.search(r"\.csv(\.zst)?$", path.name) or HISTOGRAM.fullmatch(path.name):
            return False
        try:
            with open_file(path, self.root) as file:
                head = file.readline(MOST_HEAD)
        except (OSError, ValueError):
            return False
        return TIME.encode() in head.strip().split(b";")

    def _unnumbered(self, run: PublishedRun) -> bool:
        """Whether the result files are of this tree and name no run of a loop."""
        return run.folder.is_relative_to(self.root) and not re.search(r"_run\d", run.capture)

    def _look_over(self, runs: list[PosRun]) -> None:
        """Warn about what is not there, and give the tree's warnings to its first run."""
        lacking = [run for run in runs if not run.results.has_latencies]
        if lacking:
            self._warning("no-latencies", f"{self.root}: {_lack(lacking, len(runs))}")
        for run in runs:
            run.warnings += run.unfinished()
        missing = self.crate.missing() if self.crate else []
        if missing:
            self._warning(
                "crate-incomplete",
                f"{self.root}: {len(missing)} of the files that {CRATE} names are not there "
                f"({_few(missing)}); copy the whole crate",
            )
        if runs:
            runs[0].warnings[:0] = self.warnings

    def _warning(self, code: str, message: str) -> None:
        self.warnings.append(Notice(code, message))


def find_pos_trees(top: Path, published: Sequence[PublishedRun]) -> list[PosTree]:
    """The result trees of pos in the folder `top`, at any depth.

    Those of the `published` runs that lie in them become their runs' results.
    """
    found = []
    for files in find_trees(top):
        tree = PosTree(files, top.resolve(), published)
        try:
            tree.crate = read_crate(files.root)
        except (OSError, ValueError) as error:
            files.damaged(files.root / CRATE, str(error))
        found.append(tree)
    return found


def _number_repeats(runs: Sequence[PosRun]) -> None:
    """Number runs of the same variables where no variable numbers them."""
    seen: Counter[str] = Counter()
    for run in runs:
        if run.meaning.repeat_key is None:
            same = json.dumps([run.command, run.trim_ns, run.loop_variables], sort_keys=True)
            seen[same] += 1
            run.repeat = seen[same]


def _lack(lacking: Sequence[PosRun], runs: int) -> str:
    """Which runs have no latencies, and what they have instead."""
    told = {
        f"throughput logs, such as {run.results.throughput.name}: their totals were imported"
        for run in lacking
        if run.results.throughput
    }
    others = sorted({path.suffix or path.name for run in lacking for path in run.results.files})
    instead = sorted(told)[:1] or [f"only files such as {_few(others)}" if others else "no files"]
    which = "" if len(lacking) == runs else f" ({_few([run.slug for run in lacking])})"
    return (
        f"{len(lacking)} of {runs} runs hold no latencies{which}: {instead[0]}; latencies are read "
        "from result files, from captures like latencies-pre_run0.pcap.zst and -post, or from "
        "histogram_run0.csv"
    )


def _few(names: Sequence[str]) -> str:
    """The first names, and how many there are besides."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


#: What pos says of a command that came to its end.
FINISHED = "finished"


@dataclass(frozen=True)
class Description:
    """What all runs of a tree have in common."""

    name: str
    root: Path
    place: str
    """Its folder, from the one that is imported on; empty where that is it."""
    allocation: Mapping[str, Any]
    crate: Crate | None
    hosts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Results:
    """The files of a run that results are read from, the best ones first."""

    published: PublishedRun | None = None
    """Its captures, and published result files."""
    histogram: Path | None = None
    throughput: Path | None = None
    samples: Path | None = None
    files: tuple[Path, ...] = ()
    """All files of the run, also those that nobody reads."""

    @property
    def has_latencies(self) -> bool:
        """Whether there is a file that holds latencies."""
        return any((self.published, self.histogram))


@dataclass
class PosRun:
    """One run, which several hosts took part in."""

    loops: Sequence[Loop]
    meaning: Variables
    of: Description
    results: Results
    command: str = ""
    """The name of its loop, where the tree has several."""
    repeat: int = 1
    """The number of its repeat, from 1."""
    warnings: list[Notice] = field(default_factory=list)
    digest: str | None = None
    _told: str | None = None

    @property
    def loop_variables(self) -> Mapping[str, Any]:
        """Its variables, as pos has them."""
        return self.loops[0].variables

    @property
    def trim_ns(self) -> int:
        """What was left out at the begin of its result files."""
        published = self.results.published
        return published.trim_ms * MILLISECOND_NS if published else 0

    @property
    def source(self) -> str:
        """The path of its `.loop` file, and the trim of its results."""
        trim = self.trim_ns // MILLISECOND_NS
        return self.loops[0].stem + (f".trim_ms{trim}" if trim else "")

    @property
    def slug(self) -> str:
        """The short name of its tree, its loop and number, and its trim."""
        return self.record("").slug

    def unfinished(self) -> list[Notice]:
        """Warnings about commands that did not finish."""
        return [
            Notice(
                "loop-failed",
                f"{loop.stem}: pos says {loop.status!r} of {loop.host}'s command instead of "
                f"{FINISHED!r}; see {loop.path.with_suffix('.stderr').name}",
            )
            for loop in self.loops
            if loop.status not in (None, FINISHED)
        ]

    def read(self) -> Content:
        """Its results, from the best files that it has."""
        digest = hashlib.sha256(json.dumps(storable(self._identity()), sort_keys=True).encode())
        content = Content()
        if (published := self.results.published) is not None:
            content = published.read()
            self.warnings += published.warnings
            digest.update((published.digest or "").encode())
        if content.evaluation is None and self.results.histogram:
            pair = self._try(self.results.histogram, digest, read_histogram)
            content = replace(content, evaluation=partial_of(pair) if pair else None)
        found = content.evaluation
        if self.results.throughput and not isinstance(found, Evaluation):
            told = found is not None and "ingress" in found.record.counts
            totals = None if told else self._try(self.results.throughput, digest, read_totals)
            if totals:
                content = replace(content, evaluation=with_totals(found, totals))
        self.digest = digest.hexdigest()
        if content.evaluation is None:
            names = sorted({path.name for path in self.results.files})
            self._told = f"no latencies in its files: {', '.join(names[:9]) or 'it has none'}"
        samples = content.samples or sampled(self.results.samples, self.of.root, self.warnings)
        return replace(content, samples=samples)

    def _try(self, path: Path, digest: Any, reader: Any) -> Any:
        """What a reader says of a file; None, and a warning, where it is damaged."""
        try:
            content = read_bytes(path, self.of.root, TABLE_BYTES)
            digest.update(f"\n{storable(path.name)}\n".encode() + content)
            return reader(content)
        except (OSError, ValueError) as error:
            self.warnings.append(
                Notice("file-damaged", f"{path}: skipped, it cannot be read: {error}")
            )
            return None

    def _identity(self) -> list[Any]:
        """What tells it from other runs, wherever the tree lies."""
        name = self.of.allocation.get("id", self.of.root.name)
        loops = [[loop.host, loop.command, loop.number, loop.variables] for loop in self.loops]
        return [name, loops, self.trim_ns]

    def record(self, experiment: str) -> RunRecord:
        """Its record; its slug is known before it is read."""
        loop, of = self.loops[0], self.of
        parts = [of.root.name, self.command, f"run{loop.digits}"]
        parts += [f"trim{self.trim_ns // MILLISECOND_NS}ms"] if self.trim_ns else []
        variables = {"source": of.place, **self.meaning.named(loop)}
        if self.command:
            variables["command"] = self.command
        if self.trim_ns and self.meaning.constant.get(TRIM) != self.trim_ns:
            variables[TRIM] = format_time(self.trim_ns)
        rate = self.meaning.rate(loop)
        published = self.results.published
        evaluation = published.settings if published else {"trim": 0, "bucket": BUCKET_NS}
        parameters = {
            "source": self.source,
            "digest": self.digest,
            "evaluation": evaluation,
            **({} if rate is None else {"traffic": {"rate": rate}}),
            "loop": dict(self.loop_variables),
            "allocation": dict(of.allocation),
            "loop_runs": {one.host: self._loop_run(one) for one in self.loops},
            "hosts": dict(of.hosts),
            "files": [path.relative_to(of.root).as_posix() for path in self.results.files],
            **({} if of.crate is None else {"crate": of.crate.description()}),
        }
        return record_of(
            parts, of.name or experiment, self.repeat, variables, parameters, self._told
        )

    def _loop_run(self, loop: Loop) -> dict[str, Any]:
        """What one host did in the run."""
        times = {} if self.of.crate is None else self.of.crate.times(loop.path)
        name = loop.path.relative_to(self.of.root).as_posix()
        return {"file": name, "status": loop.status, **times}
