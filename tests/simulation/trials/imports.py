"""Results of others: what is read of a file is what it was written of, and no more."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np

from tailtap.analysis.evaluation.values import papers
from tailtap.analysis.runs.reader import finished_runs, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.results.exporters import export
from tailtap.results.importers import importer
from tailtap.results.importers.importable import DAMAGED
from tailtap.results.importers.importer import import_tree
from tailtap.results.importers.tools import TOOLS, tool_of
from tailtap.results.importers.tools.reading import Reading, checked
from tailtap.results.importers.tools.runs import percentile_table
from tests.simulation.draw import Draw
from tests.simulation.folders import Made, experiment
from tests.simulation.tools import WRITERS, Asked, asked
from tests.simulation.trial import Trial

STATED = {"fortio", "ghz"}
"""Tools whose files say a mean of the requests that they say a least and a greatest latency of."""


def readings(text: str, tool: str) -> list[Reading]:
    assert tool_of(text) == tool
    return [checked(one) for one in TOOLS[tool].readings(text)]


def run(draw: Draw, folder: Path) -> None:
    """A file of a tool, whole, cut, and with a mean that cannot be."""
    made = asked(draw)
    name = draw.choice("tool", [*WRITERS])
    tool, write = WRITERS[name]
    text = write(made)
    [found] = readings(text, tool)
    as_written(found, name, made)
    in_a_folder(draw, folder, text, name, made)
    cut_off(text, draw.between("cut", 0, len(text)), tool, made)
    if name in STATED:
        greatest = made.every.max()
        content = json.loads(text)
        holder, unit = (content, 1) if name == "ghz" else (content["DurationHistogram"], 1e9)
        if name == "ghz":
            content |= {"details": [], "histogram": [{"mark": greatest / 1e9, "count": 1}]}
        holder["average" if name == "ghz" else "Avg"] = 3 * float(greatest) / unit
        refused_or_silent(json.dumps(content), tool)


def cut_off(complete: str, cut: int, tool: str, made: Asked) -> None:
    """A file that was cut is refused, or that is said; at the end of a line nobody can know."""
    text = complete[:cut]
    ends = text.endswith(("\n", "}")) or complete[cut:].startswith("\n")
    try:
        parts = readings(text, tool) if tool_of(text) == tool else []
    except DAMAGED:
        return
    for part in parts:
        within(part, made)
        said = any(one.code == "read-in-part" for one in part.doubts)
        whole = part.total == made.good.size
        assert whole or said or not part.total or ends, (part, text[-80:])


def refused_or_silent(text: str, tool: str) -> None:
    """Nothing is said of a mean that its own least and greatest latency contradict."""
    try:
        found = readings(text, tool)
    except ValueError as error:
        assert "mean" in str(error), error
        return
    assert all(one.mean is None for one in found), found


def as_written(found: Reading, name: str, made: Asked) -> None:
    """All of it is there, and each percentile is between the ends of its bucket."""
    assert found.total == made.good.size
    if name not in ("wrk", "hgrm", "hlog", "cyclictest", "netperf"):
        lost = made.failed.size
        assert lost in (found.errors, found.lost), found
        assert found.sent == made.every.size
    within(found, made)
    ordered = np.sort(made.good)
    rows = percentile_table(found).to_pylist()
    assert rows and [row["value"] for row in rows] == sorted(row["value"] for row in rows)
    for row in rows:
        rank = made.good.size - row["above"]
        true = int(ordered[rank - 1])
        step = true // 1_000 + 1_000 if name in ("wrk", "hgrm", "hlog", "iperf") else 1
        assert row["low"] is None or row["low"] <= true + step, (row, true)
        assert true <= row["value"] + step, (row, true)
    if found.mean is not None:
        true_mean = made.good.mean()
        # Latencies cut to whole microseconds, and the mean to three digits of milliseconds.
        assert abs(found.mean - true_mean) <= true_mean / 500 + 1_500, (found.mean, true_mean)


def within(found: Reading, made: Asked) -> None:
    """Not more than there was, and nothing that is beyond all of it by more than its bucket."""
    assert (found.total or 0) <= made.every.size
    buckets, least, greatest = found.buckets, made.every.min(), made.every.max()
    if buckets.count.size:
        assert buckets.low[-1] <= greatest * 1.001 + 1
        assert buckets.high[0] >= least * 0.999 - 1_000
        assert int(buckets.count.sum()) <= made.every.size
    if found.mean is not None and found.minimum is not None and found.maximum is not None:
        assert found.minimum <= found.mean * 1.000001
        assert found.mean <= found.maximum * 1.000001


def imported(tree: Path, out: Path, *, database: bool) -> Sequence[Run]:
    """The runs of a tree; a database is made of them where that is wanted."""
    if database:
        import_tree(tree, out)
    else:
        with mock.patch.object(importer, "refresh"):
            import_tree(tree, out)
    return read_runs(out).runs


def in_a_folder(draw: Draw, folder: Path, text: str, name: str, made: Asked) -> None:
    """The same through a run folder."""
    (folder / "tree").mkdir()
    (folder / f"tree/{name}.txt").write_text(text)
    [one] = imported(folder / "tree", folder / "theirs", database=draw.seed % 10 == 0)
    assert one.status == "imported" and one.packets == made.good.size and not one.error
    assert one.evaluation is not None
    values = [row.value for row in one.evaluation.curve]
    assert values == sorted(values)
    if one.maximum is not None:
        assert values[-1] <= one.maximum


def trees(draw: Draw, folder: Path) -> None:
    """Runs of our own as others publish them, imported again: they are equal."""
    done = [one for one in experiment(draw, folder / "own") if one.done]
    if not done:
        return
    kind = draw.choice("kind", ("papers", "pos"))
    export(folder / "own", kind, folder / "tree")
    found = imported(folder / "tree", folder / "theirs", database=draw.seed % 50 == 0)
    own = finished_runs(folder / "own")
    assert len(found) == len(own) == len(done)
    matched = {key(kind, one): one for one in found}
    if kind == "pos":
        assert sorted(map(asked_of, found)) == sorted(map(asked_of, own))
    for ours, true in zip(own, done, strict=True):
        equal(ours, matched[key(kind, ours)], true)
    damaged(draw, folder, len(done))


def asked_of(one: Run) -> tuple[object, ...]:
    return one.experiment, *one.variables.items(), one.repeat, one.rate


def key(kind: str, one: Run) -> tuple[str, int]:
    platform = one.variables.get("dut.platform", "")
    return (platform if kind == "pos" or one.origin is None else one.origin.place), one.repeat


def equal(ours: Run, theirs: Run, true: Made) -> None:
    """An imported run says what the run says that it was made of."""
    assert (theirs.packets, theirs.lost, theirs.loss) == (ours.packets, ours.lost, ours.loss)
    assert theirs.maximum == ours.maximum == true.latency[-1]
    ps = papers()
    mine, other = [ours.percentile(p) for p in ps], [theirs.percentile(p) for p in ps]
    assert [row and (row.value, row.above, row.supported) for row in mine] == [
        row and (row.value, row.above, row.supported) for row in other
    ]
    assert ours.evaluation is not None and theirs.evaluation is not None
    mean = theirs.evaluation.mean
    assert mean is None or true.latency[0] <= mean <= true.latency[-1]
    for side in ("ingress", "egress"):
        for counts in ("gap_counts", "rate_counts"):
            pairs = [getattr(one.evaluation, counts)[side] for one in (ours, theirs)]
            assert all(np.array_equal(*both) for both in zip(*pairs, strict=True))


def damaged(draw: Draw, folder: Path, runs: int) -> None:
    """A file of the tree that is cut costs itself, is said, and what it said is not made up."""
    files = sorted(path for path in (folder / "tree").rglob("latencies-*.csv"))
    path = draw.choice("cut file", files)
    whole = path.read_bytes()
    left = whole[: draw.between("length", 0, len(whole) - 1)]
    path.write_bytes(left)
    with mock.patch.object(importer, "refresh"):
        found = import_tree(folder / "tree", folder / "damaged")
    assert found.runs == runs
    told = [one.message for one in found.warnings if one.code in ("file-damaged", "run-twice")]
    kind = re.sub(r".*\.(\w+)\.csv", r"\1", path.name)
    at_a_line = left.count(b"\n") > 1 and left.endswith(b"\n")  # which nobody can know
    assert at_a_line or any(path.name in message for message in told), (kind, found.warnings)


TRIAL = Trial("imports", run, every=2)
TREES = Trial("trees", trees, every=10)
