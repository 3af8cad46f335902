"""One run of a result tree: its loop variables as a run's, and its results as rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailtap.analysis.evaluation import Evaluation
from tailtap.base.foreign import TABLE_BYTES, read_bytes, storable
from tailtap.base.units import format_time
from tailtap.records.record import Notice
from tailtap.records.run import RunRecord
from tailtap.results.importers.importable import Content, record_of, sampled
from tailtap.results.importers.pos.crate import Crate
from tailtap.results.importers.pos.moongen import (
    BUCKET_NS,
    partial_of,
    read_histogram,
    read_totals,
    with_totals,
)
from tailtap.results.importers.pos.tree import Loop
from tailtap.results.importers.pos.variables import TRIM, Variables
from tailtap.results.importers.published import MILLISECOND_NS, PublishedRun

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
