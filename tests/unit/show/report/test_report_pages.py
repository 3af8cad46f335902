"""From folders to pages: what is read, what is refused, and what leads a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from devices import Bench, sharp
from experiment_folders import traffic, write_evaluation, write_experiment, write_run
from placed_runs import large, placed_run, recorded
from recorded_machines import NAMES

from tailtap.analysis.runs.groups import configurations, finding, floor_of, listed
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.runs.text import time_text
from tailtap.base.errors import InputError, NotWritten
from tailtap.base.units import parse_cpus
from tailtap.measure.search.methods import settings_of
from tailtap.show.report import write_report
from tailtap.show.report.figures import hdr
from tailtap.show.report.machine import placed
from tailtap.show.report.tables import summary
from tailtap.show.sections import COUNT, Column, row, table

EVIL = "<img src=x onerror=alert(1)>$\\frac{{{</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs, with 5000 worst packets each, and a failed one."""
    return write_experiment(tmp_path_factory.mktemp("experiment"))


def payload(page: str) -> dict[str, Any]:
    packed = re.search(r'id="payload">([^<]*)<', page)
    assert packed
    value: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return value


class Loads(HTMLParser):
    """Addresses of whatever a browser fetches on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "srcset", "data", "poster") + (("href",) if tag != "a" else ())
        self.addresses += [value or "" for name, value in attrs if name in names]


def test_a_page_of_ten_runs_is_small_and_loads_nothing(folder: Path) -> None:
    page = write_report(folder, figures=False).page.read_text("utf-8")
    runs = load_experiment(folder).finished
    assert [run.evaluation and run.evaluation.worst_packets.latency_ns.size for run in runs] == [
        5000
    ] * 10
    assert len(page.encode()) < 2_000_000
    loads = Loads()
    loads.feed(page)
    assert loads.addresses == ["data:,"]  # the icon, so that none is asked for
    assert not re.search(r"@import|@font-face|url\(|https?://", page)


def test_the_worst_repeat_is_chosen_by_the_highest_percentile_all_support(folder: Path) -> None:
    for group in configurations(load_experiment(folder)):
        assert group.common_percentile == 0.999  # 20 000 packets: ten above p99.95
        rows = [listed(member.evaluation, 0.999) for member in group.members]
        values = [row.value for row in rows if row]
        assert group.worst is group.members[values.index(max(values))]


def test_an_invalid_run_leads_nothing_and_says_so_wherever_it_stands(tmp_path: Path) -> None:
    """Three repeats, of which the second and slowest is invalid, and one invalid run alone."""
    slow = {"dut.platform": "bare-metal", "traffic.rate": "10 kpkt/s"}
    for repeat in (1, 2, 3):
        # It has fewer packets, too: what it does not support does not matter to the others.
        write_run(tmp_path, repeat, slow, repeat=repeat, packets=4_000 if repeat == 2 else 20_000,
                  achieved=7_000.0 if repeat == 2 else None)  # fmt: skip
    write_run(tmp_path, 4, {"dut.platform": "wire", "traffic.rate": "10 kpkt/s"}, achieved=5_000.0)
    repeats, alone = groups = configurations(load_experiment(tmp_path))
    assert repeats.common_percentile == 0.999
    rows = [listed(member.evaluation, 0.999) for member in repeats.members]
    first, second, third = (row.value for row in rows if row)
    assert second > max(first, third)
    assert repeats.worst is repeats.members[0 if first > third else 2]
    found = finding(repeats, groups)
    assert found.value == time_text(max(first, third))
    assert "in the worst of 2 valid repeats" in found.sentence
    assert "1 of 3 repeats is invalid and left out: it was not the load" in found.sentence
    assert time_text(repeats.members[1].evaluation.max or 0) not in found.sentence
    # Where nothing is valid there is no number, and the wire is no floor.
    assert alone.worst is None and floor_of(repeats, groups) is None
    found = finding(alone, groups)
    assert (found.value, found.name) == ("invalid", "no result")
    assert not re.search(r"\d", found.sentence)
    # A figure with room for one repeat prefers valid ones.
    one, bad, three = repeats.members
    chosen = [repeats.example(members) for members in ([one, bad, three], [bad, three], [bad], [])]
    assert chosen == [repeats.worst, three, bad, None]
    assert alone.example(alone.members) is alone.members[0]
    shown = [row for part in summary(groups).parts for row in part.rows]
    assert [row.look == "invalid" for row in shown] == [False, True, False, True]
    assert [row.look for row in shown].count("worst") == 1
    labels = [run["label"] for run in payload(write_report(tmp_path).page.read_text())["runs"]]
    assert [row.cells[0].value for row in shown] == labels
    assert [label.endswith(" (invalid)") for label in labels] == [False, True, False, True]
    assert "wire · 10 kpkt/s (invalid)" in {entry.label for entry in hdr(groups).legend}


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    warning = [{"code": EVIL, "message": EVIL}]
    write_run(tmp_path, 1, {"dut.platform": "wire", "x": EVIL}, name=EVIL, warnings=warning)
    write_run(tmp_path, 2, {"x": EVIL}, status="failed", error=EVIL, name=EVIL)
    page = write_report(tmp_path, figures=True).page.read_text("utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 3
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 6
    assert payload(page)["runs"][0]["label"] == f"wire · {EVIL}"


def test_few_packets_and_a_single_run_have_a_page_too(folder: Path, tmp_path: Path) -> None:
    write_evaluation(tmp_path / "tiny", traffic("wire", 10_000, 100, 1))
    assert write_report(tmp_path / "tiny", figures=True).runs == 1
    [run, *_] = sorted(folder.glob("runs/*"))
    assert write_report(run, tmp_path / "one", figures=False).runs == 1


@pytest.mark.parametrize(
    "damage", ["run.json", "evaluation/evaluation.json", "evaluation/gaps.parquet"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]", b'{"status": "done"}', None])
def test_a_damaged_run_is_listed_and_does_not_stop_the_report(
    tmp_path: Path, damage: str, content: bytes | None
) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=2_000)
    run = write_run(tmp_path, 2, {"dut.platform": "wire"}, repeat=2, packets=2_000)
    if content is not None:
        (run / damage).write_bytes(content)
    elif damage != "run.json":
        (run / damage).unlink()
    else:
        (run / damage).write_text('{"status": "done", "taps": 3, "warnings": {"a": 1}}')
    experiment = load_experiment(tmp_path)
    [failed] = experiment.failed
    assert len(experiment.finished) == 1 and failed.failure and "\n" not in failed.failure


def test_a_search_is_reported_with_its_trials_alone_and_refused_when_damaged(
    tmp_path: Path,
) -> None:
    settings = settings_of((0.0, 0.5), 1_000, 500_000)
    bench = Bench(sharp(40_000), able=70_000)
    bench.store(tmp_path, settings, bench.search("mlr", settings))
    write_run(tmp_path / "trials", 1, {"traffic.rate": "40 kpkt/s"}, packets=500, rate=40_000)
    page = write_report(tmp_path, figures=False).page.read_text("utf-8")
    assert "The highest rate" in page and "488" in page
    record = tmp_path / "search.json"
    content = json.loads(record.read_text())
    del content["answers"][0]["reason"]
    for text, said in ((json.dumps(content), r"answers\.0\.reason: this key is missing"),
                       ("{", "this is no JSON file")):  # fmt: skip
        record.write_text(text)
        with pytest.raises(InputError, match=rf"search\.json: {said}"):
            write_report(tmp_path)


def test_what_cannot_be_reported_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs in it"):
        load_experiment(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        load_experiment(tmp_path / "missing")
    write_run(tmp_path, 1, {}, status="failed", error="no root")
    with pytest.raises(InputError, match=r"no finished run.*no root"):
        load_experiment(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritten, match="cannot write the report: File exists"):
        write_report(folder, tmp_path / "file", figures=False)


def test_reports_are_the_same_for_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    write_run(folder, 1, {"dut.platform": "wire"}, packets=2_000)
    for name in ("a", "b"):
        write_report(folder, tmp_path / name)
    figures = sorted(path.name for path in (tmp_path / "a" / "figures").iterdir())
    assert figures == sorted(
        f"{name}.{kind}"
        for name in ("hdr", "worst", "gaps", "latency", "rates")
        for kind in ("pdf", "png", "svg")
    )
    for name in figures:
        first, second = ((tmp_path / side / "figures" / name).read_bytes() for side in "ab")
        assert first == second, name
    pdf = (tmp_path / "a" / "figures" / "hdr.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf


def test_columns_that_say_the_same_of_every_run_are_left_out() -> None:
    columns = [Column("run"), *(Column(name, COUNT, group=group)
                                for group, name in zip("xxyyz", "abcde", strict=True))]  # fmt: skip
    whole = table("", columns, [row("a", 0, 7, 0, None, 0), row("b", 0, 8, 0, None, None)])
    shown = whole.without(0, None)
    assert [column.name for column in shown.columns] == ["run", "x b", "z e"]
    assert shown.groups == [("x", 1), ("z", 1)]
    assert shown.left_out == "Zero in every run: x a, y c. Not known of any run: y d."
    texts = [
        [cell.page(column.kind) for cell, column in zip(one.cells, shown.columns, strict=True)]
        for one in shown.rows
    ]
    assert texts == [["a", "7", "0"], ["b", "8", "–"]]
    nothing = table("", columns, [row("a", 0, 0, 0, 0, 0)])
    assert len(nothing.without(0, None, keep=3).columns) == 3


PLACED: dict[str, dict[str, Any]] = {
    "intel-two-sockets": {"dut": [1, 2], "generator": 6, "taps": [0, 3]},
    "amd-epyc-four-nodes": {"dut": [17, 18], "generator": 20, "taps": [16]},
    "raspberry-pi-4": {"dut": [2], "generator": 1, "taps": [0, 3]},
    "cloud-vm": {"dut": [1], "generator": 0, "taps": [0]},
    "large": {"dut": [2, 3], "generator": 40, "taps": [0]},
}


@pytest.mark.parametrize("name", [*NAMES, "large"])
def test_every_node_and_card_of_a_machine_is_shown(tmp_path: Path, name: str) -> None:
    there = large() if name == "large" else recorded(name, tmp_path / "machine")
    placed_run(tmp_path, 1, there, **PLACED[name])
    [found] = placed(configurations(load_experiment(tmp_path)))
    assert list(found.machine.cpus) == list(parse_cpus(there["cpu"]["online"]))
    parts = {row.name.partition(",")[0]: row for row in found.machine.parts}
    for node, cpus in found.machine.nodes.items():
        assert parse_cpus(parts[f"NUMA node {node}"].cpus) == cpus
    cards = [name.split()[1] for name in parts if name.startswith("card ")]
    assert cards == [nic["name"] for nic in there["nics"]]
    rows = {row.name: row.cpus for row in found.rows}
    assert rows["DuT"] == rows["receives at tt-in"]
    assert parse_cpus(rows["DuT"]) == tuple(PLACED[name]["dut"])
