"""From folders to pages: what is read, what is refused, and what leads a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from experiment_folders import traffic, write_evaluation, write_experiment, write_run

from tailtap.analysis.runs.groups import configurations, finding, floor_of, listed
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.runs.text import time_text
from tailtap.show.report import write_report

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
    assert "1 of 3 repeats is invalid and left out: the generator did" in found.sentence
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


def test_reports_are_the_same_for_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    write_run(folder, 1, {"dut.platform": "wire"}, packets=2_000)
    for name in ("a", "b"):
        write_report(folder, tmp_path / name, figures=True)
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
