"""The report of a search: its answers above the latencies measured at them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from devices import Bench, sharp
from experiment_folders import write_run
from pages import visible

from tailtap.base.errors import InputError
from tailtap.measure.search.methods import settings_of
from tailtap.show.report import write_report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A search of a simulated device whose generator has a limit, and one measurement."""
    settings = settings_of((0.0, 0.5), 1_000, 500_000)
    bench = Bench(sharp(40_000), able=70_000)
    answers = bench.search("mlr", settings)
    bench.store(tmp_path, settings, answers)
    rate = answers[0].rate
    assert rate is not None
    write_run(tmp_path / "latency", 1, {"traffic.rate": f"{rate} pkt/s"}, packets=1_000, rate=rate)
    write_run(tmp_path / "trials", 1, {"traffic.rate": "40 kpkt/s"}, packets=500, rate=40_000)
    return tmp_path


def test_the_page_has_the_answers_and_the_latencies(folder: Path) -> None:
    result = write_report(folder, figures=False)
    assert result.page == folder / "report" / "index.html"
    assert result.runs == 1
    text = visible(result.page.read_text("utf-8")).replace("\u00a0", " ")
    assert "The highest rate loss allowed highest rate up to width" in text
    found = json.loads((folder / "search.json").read_text())["answers"]
    assert found[0]["rate"] <= 40_000 < found[0]["upper"]
    # The device would hold 80 kpkt/s with half of the packets lost; the generator cannot send it.
    assert found[1]["reason"] == "generator"
    assert re.search(r"50 % [\d.]+ kpkt/s [\d.]+ kpkt/s \(the generator's limit\)", text)
    assert "generator-limit loss 50 %: " in text
    assert "3 of 3 × 2 s" in text or "2 of 2 × 2 s" in text


def test_without_latencies_it_shows_the_trials(folder: Path) -> None:
    (folder / "latency").rename(folder / "elsewhere")
    page = write_report(folder, figures=False).page.read_text("utf-8")
    assert "The highest rate" in page
    assert "500 packets" in visible(page) or "488 packets" in visible(page)


def test_a_damaged_search_is_one_line(folder: Path) -> None:
    record = folder / "search.json"
    content = json.loads(record.read_text())
    del content["answers"][0]["reason"]
    record.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"search\.json: answers\.0\.reason: this key is missing"):
        write_report(folder)
    record.write_text("{")
    with pytest.raises(InputError, match=r"search\.json: this is no JSON file"):
        write_report(folder)
