"""What a person at a Python prompt has: `tailtap.evaluate`, the page about it, and the notebook."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from captures import RECORD, pcap, write_many
from exchanges import dns
from nbclient import NotebookClient
from numpy.typing import NDArray
from sites import write_experiment

import tailtap
from tailtap.base.errors import InputError
from tailtap.show import report

FIGURES = ("hdr", "worst", "gaps", "latency", "rates")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    random = np.random.default_rng(7)
    sent = 10**9 + np.arange(20_000) * 50_000
    latency = 3_000 + random.gamma(2, 500, sent.size).astype(np.int64)
    write_many(folder / "before.pcap", sent, np.arange(sent.size))
    write_many(folder / "after.pcap", sent + latency, np.arange(sent.size))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> tailtap.Evaluation:
    return tailtap.evaluate(folder / "before.pcap", folder / "after.pcap")


def times(path: Path) -> NDArray[np.int64]:
    records = np.fromfile(path, RECORD, offset=24)
    stamps: NDArray[np.int64] = records["seconds"].astype(np.int64) * 10**9 + records["ns"]
    return stamps


@pytest.mark.parametrize(
    ("script", "unneeded"),
    [
        ("import tailtap", {"numpy", "pyarrow", "matplotlib", "duckdb", "tailtap._core",
                            "tailtap.analysis.evaluation"}),
        ("tailtap.evaluate(*pair)", {"matplotlib", "bokeh", "tailtap.show.report", "tailtap.remote",
                                     "tailtap.experiment"}),
        ("tailtap.evaluate(*pair).write(out); tailtap.Evaluation.load(out)", {"pandas"}),
        (("import pyarrow as pa; from tailtap.analysis.evaluation.tables import from_rows; "
          "schema = pa.schema({'a': pa.string(), 'b': pa.bool_(), 'c': pa.float64()}); "
          "found = from_rows([{'a': 'x', 'b': True}, {'c': 1.5}], schema); "
          "assert found.to_pydict() == {'a': ['x', None], 'b': [True, None], 'c': [None, 1.5]}"),
         {"pandas"}),
        (("import tailtap.experiment.reading, tailtap.measure.runner, tailtap.measure.check, "
          "tailtap.host.facts.kernel_audit"), {"numpy", "pyroute2"}),
        (("from tailtap.analysis import causes, compare, interrupts, tail; "
          "import tailtap.analysis.verdict.runs, tailtap.show.report"),
         {"bokeh", "duckdb", "matplotlib", "pandas", "scipy", "statsmodels"}),
    ],
)  # fmt: skip
def test_only_what_is_needed_is_loaded(
    folder: Path, tmp_path: Path, script: str, unneeded: set[str]
) -> None:
    """An error in what a command was given, and a plan, come without waiting for the rest."""
    whole = f"import sys, tailtap; *pair, out = sys.argv[1:]; {script}; print(*sys.modules)"
    paths = folder / "before.pcap", folder / "after.pcap", tmp_path / "out"
    command = [sys.executable, "-c", whole, *map(str, paths)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, (run.returncode, run.stderr)
    assert not unneeded & set(run.stdout.split())
    assert importlib.util.find_spec("pandas"), "statsmodels depends on it"


def test_the_names_of_the_package() -> None:
    assert {"evaluate", "Evaluation", "__version__"} <= set(dir(tailtap))
    misspelt = "evalute"
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        getattr(tailtap, misspelt)


@pytest.mark.parametrize("width", [1, 7, 100, 1_000, 10**9])
def test_histograms_of_any_width(found: tailtap.Evaluation, folder: Path, width: int) -> None:
    latency = times(folder / "after.pcap") - times(folder / "before.pcap")
    edges, counts = np.unique(latency // width * width, return_counts=True)
    histogram = found.histogram(width_ns=width)
    np.testing.assert_array_equal(histogram.edges, edges)
    np.testing.assert_array_equal(histogram.counts, counts)
    assert histogram.width == width


def test_without_a_width_a_histogram_has_that_of_the_evaluation(folder: Path) -> None:
    captures = (folder / "before.pcap", folder / "after.pcap")
    assert tailtap.evaluate(*captures).histogram().width == 100
    coarse = tailtap.evaluate(*captures, bucket_ns=250)
    assert coarse.histogram().width == coarse.gaps().width == 250
    for width in (0, -5):
        with pytest.raises(InputError, match="above zero"):
            coarse.histogram(width)


def test_gaps_and_rates_are_those_after_the_device_unless_asked_otherwise(
    found: tailtap.Evaluation, folder: Path
) -> None:
    edges, counts = np.unique(
        np.diff(np.sort(times(folder / "after.pcap"))) // 100 * 100, return_counts=True
    )
    np.testing.assert_array_equal(found.gaps().edges, edges)
    np.testing.assert_array_equal(found.gaps().counts, counts)
    assert found.gaps("ingress").edges.tolist() == [50_000]
    assert int(found.rates()[1].sum()) == int(found.rates("ingress")[1].sum()) == 20_000
    for ask in (found.gaps, found.rates):
        with pytest.raises(InputError, match="'sideways' is no side: give ingress or egress"):
            ask("sideways")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_one_evaluation(found: tailtap.Evaluation, tmp_path: Path, name: str) -> None:
    figure = report.figure(found, name)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000
    [axes] = figure.axes
    assert axes.lines
    if name == "hdr":
        assert max(float(np.max(line.get_ydata())) for line in axes.lines) == found.max
    if name in ("hdr", "latency", "gaps"):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "before.pcap → after.pcap" in [*shown, axes.get_title(loc="left")]


def test_a_figure_that_there_is_not(found: tailtap.Evaluation) -> None:
    with pytest.raises(InputError, match="'cdf' is no figure: give one of hdr, worst"):
        report.figure(found, "cdf")


@pytest.mark.timeout(20)
def test_other_threads_do_not_hold_the_evaluation_up(tmp_path: Path) -> None:
    """Beside a thread that never lets go of the interpreter by itself.

    Asking for the interpreter once a block of packets would take most of a minute here.
    """
    times = 10**9 + 1_000 * np.arange(2_000_000)
    write_many(tmp_path / "in.pcap", times, np.arange(len(times)))
    write_many(tmp_path / "out.pcap", times + 700, np.arange(len(times)))
    done = threading.Event()

    def keep_busy() -> None:
        while not done.is_set():
            pass

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        found = tailtap.evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap")
    finally:
        done.set()
        busy.join()
    assert found.counts.matched == len(times)


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
