"""What a person at a Python prompt has: `tailtap.evaluate` and the object that it gives."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from captures import RECORD, write_many
from numpy.typing import NDArray

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


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, tailtap; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    heavy = {
        "numpy",
        "pyarrow",
        "matplotlib",
        "duckdb",
        "tailtap._core",
        "tailtap.analysis.evaluation",
    }
    assert not heavy & set(run.stdout.split())


def test_evaluating_imports_nothing_that_draws_or_is_privileged(folder: Path) -> None:
    script = "import sys, tailtap; tailtap.evaluate(*sys.argv[1:]); print(*sys.modules)"
    command = [
        sys.executable,
        "-c",
        script,
        *map(str, (folder / "before.pcap", folder / "after.pcap")),
    ]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    others = {
        "matplotlib",
        "bokeh",
        "tailtap.show.report",
        "tailtap.remote",
        "tailtap.experiment",
    }
    assert not others & set(run.stdout.split())


@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        ("experiment.reading measure.runner measure.check", {"numpy"}),
        (
            (
                "analysis.causes analysis.compare analysis.interrupts show.report analysis.tail"
                " analysis.verdict.runs"
            ),
            {"bokeh", "duckdb", "matplotlib", "pandas", "scipy", "statsmodels"},
        ),
    ],
)
def test_commands_load_only_what_they_need_at_once(modules: str, unneeded: set[str]) -> None:
    """An error in what they were given, and a plan, come without waiting for the rest."""
    names = ", ".join(f"tailtap.{name}" for name in modules.split())
    script = f"import sys, {names}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not unneeded & set(run.stdout.split())


def test_tables_are_written_and_read_without_pandas(folder: Path, tmp_path: Path) -> None:
    assert importlib.util.find_spec("pandas"), "statsmodels depends on it"
    script = (
        "import sys, tailtap; *pair, out = sys.argv[1:]; tailtap.evaluate(*pair).write(out);"
        "tailtap.Evaluation.load(out); print(*sys.modules)"
    )
    files = (folder / "before.pcap", folder / "after.pcap", tmp_path / "out")
    command = [sys.executable, "-c", script, *map(str, files)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (tmp_path / "out" / "distribution.parquet").exists()
    assert "pandas" not in run.stdout.split()


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


def test_arrow_tables_are_those_of_the_files(found: tailtap.Evaluation, tmp_path: Path) -> None:
    found.write(str(tmp_path))
    tables = found.to_arrow()
    assert {f"{name}.parquet" for name in tables} == {p.name for p in tmp_path.glob("*.parquet")}
    for name, table in tables.items():
        assert table.equals(pq.read_table(tmp_path / f"{name}.parquet")), name


def test_what_was_written_is_loaded(found: tailtap.Evaluation, tmp_path: Path) -> None:
    found.write(tmp_path)
    loaded = tailtap.Evaluation.load(str(tmp_path))
    assert loaded.as_json() == found.as_json()
    for name, table in found.to_arrow().items():
        assert loaded.to_arrow()[name].equals(table), name
    assert loaded.worst(3) == found.worst(3)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_one_evaluation(found: tailtap.Evaluation, tmp_path: Path, name: str) -> None:
    figure = report.figure(found, name)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000
    [axes] = figure.axes
    assert axes.lines
    if name in ("hdr", "latency", "gaps"):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "before.pcap → after.pcap" in [*shown, axes.get_title(loc="left")]


def test_the_hdr_figure_ends_at_the_maximum(found: tailtap.Evaluation) -> None:
    [axes] = report.figure(found, "hdr").axes
    assert max(float(np.max(line.get_ydata())) for line in axes.lines) == found.max


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
