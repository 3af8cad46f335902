"""docs/howto/python.md and the notebook are run for real."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from captures import pcap, write_many
from exchanges import dns
from nbclient import NotebookClient
from sites import write_experiment

import tailtap

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/howto/python.md"
NOTEBOOK = ROOT / "examples/evaluation.ipynb"
PACKETS = 100_000


@pytest.fixture(autouse=True)
def home_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "TMPDIR"):
        monkeypatch.setenv(variable, str(tmp_path))


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A folder with the pair of captures that the page speaks of: 10 s, 50 packets of 80 us."""
    sent = 10**9 + np.arange(PACKETS) * 100_000
    latency = 3_000 + np.random.default_rng(3).gamma(2, 500, PACKETS).astype(np.int64)
    latency[10_000::1_800] = 80_000
    write_many(tmp_path / "before.pcap", sent, np.arange(PACKETS))
    write_many(tmp_path / "after.pcap", sent + latency, np.arange(PACKETS))
    asked = [(10**9, dns(True, 1, "a.example")), (10**9 + 700, dns(False, 1, "a.example"))]
    (tmp_path / "server.pcap").write_bytes(pcap(asked))
    write_experiment(tmp_path / "load")
    return tmp_path


def test_every_block_of_the_page_runs(
    captures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(captures)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    skipped = PAGE.read_text().count("```python skip\n")
    assert skipped == 2, "only what needs root is not run"
    assert len(blocks) + skipped == PAGE.read_text().count("```") / 2
    names: dict[str, Any] = {}
    printed = []
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
        printed.append(capsys.readouterr().out)
    evaluated, _, worst, gaps, _, saved, apart, many, waits, judged, repeated, failed = printed
    assert re.fullmatch(r"moonsniff\n(98999|99000)\n0\.0\n", evaluated)
    assert worst.startswith("80000 ")
    assert "50 packets took longer than 50 us" in worst
    assert "3000 to 4000 ns: " in worst
    assert "packets in the first second: 10000" in gaps
    assert re.search(r"│\s+50 │", saved)
    assert re.fullmatch(r"\d+ \d+\n", apart)
    counted = dict(line.split() for line in many.splitlines())
    assert counted.keys() == {"0", "1"}
    assert int(counted["0"]) == PACKETS and 89_990 < int(counted["1"]) < 90_010
    assert waits == "dns 1 0\n700\n"
    assert judged.startswith("holds [") and "\nnot shown " in judged
    assert re.match(r"site \d+ files; replaced: \['hostnames'\]\nreproduced \[", repeated)
    assert "A container is later. reproduced" in repeated
    assert "missing.pcap" in failed
    assert (captures / "hdr.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_names_every_option() -> None:
    options = [
        name
        for name, parameter in inspect.signature(tailtap.evaluate).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    listed = re.search(r"The options are those of (.*?)\n\n", PAGE.read_text(), re.S)
    assert listed
    assert re.findall(r"`(\w+)`", listed[1]) == options


def executed(notebook: Any, folder: Path) -> list[Any]:
    """The outputs of all cells, run by a kernel of its own inside `folder`."""
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def text_of(outputs: list[Any]) -> str:
    assert not [output for output in outputs if output.get("name") == "stderr"]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_the_notebook_makes_captures_and_explains_them(tmp_path: Path) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    outputs = executed(notebook, tmp_path)
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) == 3
    said = text_of(outputs)
    assert "matched by moonsniff" in said
    assert "12 clusters of up to 28 packets" in said
    assert "median time between them: 250.0 ms" in said
    assert "p99 < 1 ms: holds, " in said and "max < 100 us: violated, " in said
    assert "not shown: x1.00, 1 against 1 runs" in said


def test_the_notebook_takes_captures_of_ones_own(captures: Path) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    [settings] = [cell for cell in notebook.cells if cell.source.startswith("BEFORE = AFTER")]
    settings.source = "BEFORE, AFTER = 'before.pcap', 'after.pcap'"
    publish = notebook.cells[-1]
    publish.source = publish.source.replace("RESULTS = None", "RESULTS = 'load'", 1)
    said = text_of(executed(notebook, captures))
    assert "100,000 packets matched by moonsniff" in said
    assert "50 clusters of up to 1 packets" in said
    assert "files: reproduced\n" in said and "A container is later. reproduced" in said
