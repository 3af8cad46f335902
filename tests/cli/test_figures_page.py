"""docs/howto/figures.md is typed as it stands, on made-up results of the tutorial's form."""

from __future__ import annotations

import csv
import re
import sys
from itertools import product
from pathlib import Path

import pytest
from experiment_folders import write_run
from read_pages import run, steps

from tailtap.analysis.figures.kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs/howto/figures.md"


@pytest.mark.timeout(300)
def test_the_page_draws_what_it_says(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number, (platform, rate) in enumerate(product(("wire", "bare-metal"), (10, 50)), 1):
        values = {"dut.platform": platform, "traffic.rate": f"{rate} kpkt/s"}
        write_run(tmp_path / "load", number, values, packets=500, rate=rate * 1000)
    for name, content in zip(
        re.findall(r"Save this as\s`([\w.]+)`", text),
        re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M),
        strict=True,
    ):
        (tmp_path / name).write_text(content)
    path = f"export PATH={Path(sys.executable).parent}:$PATH"
    every = list(steps(text))
    assert len(every) == 3
    for step, (status, output) in zip(
        every, run(every, ["bash"], tmp_path, path, {"report": "--quiet"}, 280), strict=True
    ):
        assert status == 0, (step.command, output)
    figures = tmp_path / "load/report/figures"
    assert {path.suffix for path in figures.glob("figure-1.*")} == {".png", ".svg", ".pdf", ".csv"}
    assert "The device and the floor" in (tmp_path / "load/report/index.html").read_text()
    ratios = list(csv.DictReader((tmp_path / "together/figures/asked-hdr-table.csv").open()))
    assert ratios and {row["ratio"] for row in ratios} == {"1.0"}


def test_the_page_names_every_kind() -> None:
    [table] = re.findall(r"^\| kind \|.*?\n\n", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    first = "".join(row.split("|")[1] for row in table.strip().splitlines())
    assert sorted(re.findall(r"`([a-z-]+)`", first)) == sorted(KINDS)
