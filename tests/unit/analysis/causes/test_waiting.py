"""Packets whose server is told late, and traces of one machine with stamps of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from program import tailtap
from traced import (
    FLUSH,
    HOG,
    KWORKER,
    SECOND,
    START,
    arrivals,
    traffic,
    write_run,
)
from traces import SOFTIRQ
from two_machines import Apart, move_apart, stamp_by_cards

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record, worst_stalls
from tailtap.analysis.causes.stored import causes_of
from tailtap.analysis.causes.trace import Chosen
from tailtap.analysis.clocks.host import host_clock
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError
from tailtap.records.record import parsed
from tailtap.records.run import RunRecord
from tailtap.show.report.causes.timeline import timeline
from tests.simulation.device import CORE, SERVERS, Device, Load
from tests.simulation.machine import Job, course
from tests.simulation.records import ends, of_course
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of

SECONDS, HELD_NS, COUNT = 2.0, 400_000, 40
STAMP_NS = 500
"""How much of its service is left when a packet leaves."""
SERVER = SERVERS["softirq"]


def unseen(
    folder: Path, *, stamped_behind_ns: int = 0, gathered: bool = False
) -> tuple[Path, Chosen, Chosen]:
    """A run whose core a task has; packets of some windows come all at their end.

    In every other window the trace tells nothing of the softirqs that serve them or, `gathered`,
    their sum. Returned are the folder, and which packets waited in windows of the one and the other
    kind.
    """
    random = np.random.default_rng(5)
    sent = arrivals(5_000, SECONDS, random)
    windows = np.sort(random.choice(int(SECONDS * SECOND) // HELD_NS - 2, COUNT, replace=False))
    window, since = np.divmod(sent - START, HELD_NS)
    held = np.isin(window, windows) & (since < HELD_NS - 100_000)
    kind = np.where(held, np.searchsorted(windows, window) % 2, -1)
    told = np.where(held, sent - since + HELD_NS - 20_000, sent)
    load = Load(told, np.full(sent.size, 2_000), HELD_NS)
    began, hogged = START - 1_000_000, [Job(START - 900_000, 2 * SECOND, HOG)]
    core = course(SERVER, load.arrivals.tolist(), load.service.tolist(), hogged, began)
    made = Device(load, sent, sent * 0 + stamped_behind_ns - STAMP_NS, core, core, None, began)
    records = of_course(core, CORE)
    hidden = records["kind"] == SOFTIRQ
    hidden &= np.isin(ends(records), np.array(core.left)[kind == 1])
    if gathered:
        records["flags"][hidden], records["aux"][hidden] = 1, 1
    else:
        records = records[~hidden]
    run = write_run(folder, Told(made, records, began, made.ended))
    return run, kind == 0, kind == 1


def blamed(folder: Path) -> tuple[Explained, list[str]]:
    [found] = explain_runs([folder], late="95 us")
    return found, pq.read_table(folder / "causes-late.parquet")["blamed"].to_pylist()


def test_nothing_is_said_of_packets_that_left_in_no_softirq_of_the_trace(tmp_path: Path) -> None:
    folder, told, hidden = unseen(tmp_path / "001-blind")
    found, causes = blamed(folder)
    assert min(told.sum(), hidden.sum()) > 20
    assert causes.count("waiting") == told.sum()
    assert causes.count("unexplained") == hidden.sum()
    assert record(found).unexplained.packets == hidden.sum()
    [warning] = [one for one in found.warnings if one.code == "trace-blind"]
    assert (
        f"{hidden.sum()} late packets are unexplained: they left while hog had the core"
        in warning.message
    )
    lines = {line.words.partition(": ")[2] for line in worst_stalls(found, COUNT)}
    assert any("its core was not notified" in line for line in lines)
    assert any(line.startswith("no softirq was recorded; hog had") for line in lines)


@pytest.mark.parametrize("changes", [{"stamped_behind_ns": 20_000}, {"gathered": True}])
def test_what_may_have_been_seen_is_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Stamps made behind the core tell nothing of its trace, and a sum of softirqs is seen."""
    folder, told, hidden = unseen(tmp_path / "001-seen", **changes)
    found, causes = blamed(folder)
    assert causes.count("waiting") == told.sum() + hidden.sum()
    assert not [one for one in found.warnings if one.code == "trace-blind"]


LATE = "100 us"


@pytest.fixture(scope="module")
def simulated() -> Told:
    kinds = ((HOG, 8, 1_500_000), (KWORKER, 12, 300_000), (FLUSH, 12, 400_000))
    return traffic(7, SECONDS, *((what, n, (dur, dur + 100_000)) for what, n, dur in kinds))


@pytest.fixture
def run(simulated: Told, tmp_path: Path) -> Path:
    return write_run(tmp_path / "001-apart", simulated)


def explained(run: Path, late: str = LATE) -> Explained:
    [found] = explain_runs([run], late=late)
    return found


@pytest.mark.parametrize(
    ("width_ns", "stepped", "says"),
    [
        (
            2_000_000,
            False,
            r"known to 2 ms, too coarse to explain packets up to \d.* later than",
        ),
        (10_000, True, "the clock of one of them stepped, or changed its rate"),
    ],
)
def test_clocks_that_tell_nothing_are_refused(
    run: Path, width_ns: int, stepped: bool, says: str
) -> None:
    move_apart(run, Apart(3_000_000, width_ns=width_ns), stepped=stepped)
    with pytest.raises(InputError, match=says):
        explained(run)


def test_what_is_told_of_clocks_may_be_damaged(run: Path) -> None:
    move_apart(run, Apart())
    whole = json.loads((run / "run.json").read_text())
    for wrong, said in (
        ({"at_ns": [1]}, r"clocks\.dut\.at_ns: \[1\] is wrong"),
        ({"drifts": ["a", 1]}, r"clocks\.dut\.drifts\.0: 'a' is wrong"),
        ({"at_ns": [2, 1]}, r"clocks of run\.json: damaged"),
        ({"ahead_ns": None}, "the trace cannot be joined"),
    ):
        dut = whole["clocks"]["dut"] | wrong
        damaged = {**whole, "clocks": {**whole["clocks"], "dut": dut}}
        with pytest.raises(InputError, match=said):
            host_clock(parsed("run.json", damaged, RunRecord), "the trace")


def test_the_page_says_how_well_the_clocks_are_known(run: Path, simulated: Told) -> None:
    """What the cores did is drawn where the packets' clock has it, to that."""
    move_apart(run, Apart(3_000_000, drift=1e-5, width_ns=20_000, off=1.0))
    explained(run)
    [told] = finished_runs(run)
    causes = causes_of(told)
    [shown, *_] = timeline(causes)["packets"]
    assert shown["clock"].endswith("how they stand to each other is known to ±10\xa0µs here.")
    slices = causes.slices([causes.trace.span_ns])
    drawn = sorted(one.start for one in slices if one.name == "hog")
    truth, _ = rows_of(simulated.made.core)[HOG.row]
    assert len(drawn) == len(truth)
    assert max(abs(one - other) for one, other in zip(drawn, truth, strict=True)) <= 10_000 + 1


@pytest.mark.parametrize(("clocks", "apart"), [(1, False), (2, False), (2, True)])
def test_stamps_of_cards_are_explained_as_those_of_the_kernel(
    run: Path, clocks: int, apart: bool
) -> None:
    """By clocks of their own, which drift; the DuT may be another host, too."""
    expected = [(row.cause, row.detail, row.packets) for row in record(explained(run)).causes]
    stamp_by_cards(run, clocks)
    if apart:
        move_apart(run, Apart(3_000_000, drift=1e-5, width_ns=2_000, off=1.0))
    told = record(explained(run))
    assert [(row.cause, row.detail, row.packets) for row in told.causes] == expected
    assert told.clock is not None
    assert (500 if clocks == 1 else 1_000) <= told.clock.width_ns <= 10_000


def test_captures_of_cards_are_evaluated_by_what_the_tap_printed(run: Path, tmp_path: Path) -> None:
    """As the run is, whose record keeps the same."""
    stamp_by_cards(run, 2)
    files = {side: run / f"{side}.stamps" for side in ("ingress", "egress")}
    taps = json.loads((run / "run.json").read_text())["taps"]
    counts = {"seen": 1, "stored": 1, "lost": 0, "other": 0, "interface": "p0", "namespace": None}
    links = {
        side: {**taps[side], **counts, "file": str(path), "files": [str(path)], "warnings": []}
        for side, path in files.items()
    }
    told = tmp_path / "tap.json"
    lines = {"event": "ready", "links": list(links)}, {"event": "done", "links": links}
    told.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = tailtap("evaluate", *files.values(), "--clocks", told, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    stored = json.loads((run / "evaluation/evaluation.json").read_text())
    assert (found["clocks"], found["counts"]) == (stored["clocks"], stored["counts"])
    assert found["clocks"]["by"] == "readings"
    for content, words in (
        ("{", "this is not what `tailtap tap --clock hardware --json` printed"),
        (json.dumps(lines[0]), "it tells of 0 taps that wrote ingress.stamps"),
    ):
        told.write_text(content)
        done = tailtap("evaluate", *files.values(), "--clocks", told)
        assert done.returncode == 2
        assert words in done.stderr
