"""The papers figure by figure, and the ways that the benchmark compares."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import postgres
import pytest
from experiment_folders import write_run
from published import PUBLISHED, needs_published
from scipy import stats

from benches import evaluate, long, process, timing, traffic
from benches.coverage import Way as Estimator
from benches.coverage import by_evd, by_scipy, by_tailtap, errors
from benches.papers import (
    DRAWINGS,
    FACTS,
    PAGES,
    ROOT,
    STATES,
    PaperFile,
    counterparts,
    found_differences,
    page,
    read_files,
    read_papers,
    stored,
    with_differences,
)
from benches.published import DOCS, tell
from benches.timing import Answer, Way
from tailtap.analysis.compare.comparison import read
from tailtap.analysis.evaluation.values import papers
from tailtap.analysis.figures.arranging import arrange
from tailtap.analysis.figures.beside import set_beside
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.runs.reader import DATABASE, load_experiment, read_runs
from tailtap.results.importers.importer import import_tree
from tailtap.show.reproduce.results import PRINTED, Cell, table6

MEASURED = {
    "how-low": ["1", *map(str, range(5, 13)), "section-7"],
    "virtualized": [*map(str, range(6, 19)), *(f"table-{n}" for n in range(4, 8))],
    "control-groups": [*map(str, range(3, 9)), "table-1"],
    "containers": [*map(str, range(3, 9))],
}
"""Every figure and table of the papers that shows a measurement."""


@pytest.fixture(scope="module")
def files() -> list[PaperFile]:
    return read_files()


def every(figures: Sequence[Figure]) -> set[str]:
    return set(chain.from_iterable(map(counterparts, figures)))


def test_each_figure_of_the_papers_has_one_file(files: list[PaperFile]) -> None:
    measured = [f"{paper}-{one}" for paper, known in MEASURED.items() for one in known]
    papers = read_papers()
    assert list(papers.figures) == measured
    found = [one for file in files for one in sorted(every(file.figures))]
    assert sorted(found) == sorted(measured)
    assert sorted(papers.remarks) == [file.name for file in files]


def test_the_small_scale_draws_the_same_figures(files: list[PaperFile]) -> None:
    """All figures say what they are of, and none is of another file's."""
    for file in files:
        small = file.small.combinations[0][1].figures
        assert all(counterparts(figure) for figure in (*small, *file.figures)), file.name
        assert every(small) <= every(file.figures), file.name
        assert small and file.small.combinations[0][1].question.endswith("?")


def test_the_tuned_halves_set_what_the_papers_set(files: list[PaperFile]) -> None:
    """Wherever a file asks for the boot parameters of a paper, it asks for its other knobs, too."""
    tuned = set()
    for file in files:
        for _, experiment in file.whole.combinations:
            boot, tuning = getattr(experiment.dut.settings, "boot", ""), experiment.dut.tuning
            is_tuned = "irqaffinity" in boot
            if not experiment.traits.has_dut:
                continue
            assert is_tuned == (tuning != "none"), (file.name, boot, tuning)
            tuned |= {file.name} if is_tuned else set()
    assert len(tuned) == 11  # all but those of machines as they are installed


def test_each_system_has_a_state_a_test_and_a_proof(files: list[PaperFile]) -> None:
    papers = read_papers()
    assert len({one.name for one in papers.systems}) == 22
    for one in papers.systems:
        assert one.state in STATES and set(one.papers) <= papers.documents.keys(), one.name
        assert (ROOT / one.tried).is_file(), one.name
        assert (one.state == "not tried") == one.tried.startswith("examples/"), one.name
        for typed in re.findall(r"examples/\S+\.yaml", one.proof):
            assert (ROOT / typed).is_file(), one.name
    # Data that are public stand beside ours, or the page says why not.
    beside = {one for file in files for figure in file.figures if figure.beside
              for one in counterparts(figure)}  # fmt: skip
    for name, row in papers.figures.items():
        is_public = row.data not in ("", DRAWINGS)
        assert is_public == (name in beside or bool(row.apart)), name
        assert not (name in beside and row.apart), name


def test_what_a_plan_differs_in_is_in_its_file(files: list[PaperFile]) -> None:
    papers = read_papers()
    for file in files:
        fresh = with_differences(file, papers)
        assert file.path.read_text("utf-8") == fresh, f"{file.name}: run 'make docs-papers'"
    had = [one.had for one in papers.documents.values()]
    had += [one.had for one in papers.figures.values()]
    assert set(chain.from_iterable(had)) == set(FACTS)


def test_differences_are_found_in_both_directions(files: list[PaperFile]) -> None:
    [file], papers = [one for one in files if one.name == "line-lengths"], read_papers()
    papers.documents["containers"].had |= {
        "frame size": ["64 B", "1500 B"],
        "placement of interrupts": ["node"],
        "number of repeats": [10],
        "kernel": [],
    }
    assert found_differences(file, papers)[2:-2] == [
        "The placement of interrupts is 31 CPUs, too; the paper's was not.",
        "The frame size is never 1500 B, unlike the paper's.",
        "The number of repeats is 3; the paper's was 10.",
    ]
    assert "the kernel (rt here)" in found_differences(file, papers)[-1]


def test_the_page_is_fresh(files: list[PaperFile]) -> None:
    made = page(files, read_papers(), stored())
    assert (PAGES / "README.md").read_text(encoding="utf-8") == made, "run 'make docs-papers'"


LEFT_OUT = {
    f"measurements/v{version}{rest}"
    for version in (1, 2)
    for rest in (", 7 Mpkt/s", "_1500byte, 800 kpkt/s")
}
"""Published runs that the excerpt has not."""
RATES = {"l2-or-l3": 100_000}
"""At which the excerpt has a file's runs, unless at 1 Mpkt/s."""


@needs_published
def test_published_curves_stand_beside_ours(files: list[PaperFile], tmp_path: Path) -> None:
    """Each of the published runs that a figure names is in its tree, and drawn beside ours."""
    trees = {}
    beside = [(file.name, one) for file in files for one in file.figures if one.beside]
    for name, figure in beside:
        assert figure.beside is not None and figure.beside.path is not None
        path, ours = figure.beside.path, tmp_path / f"{name}-{figure.name}"
        if path not in trees:
            (tmp_path / path).mkdir()
            import_tree(PUBLISHED / path, tmp_path / path / DATABASE)
            trees[path] = read_runs(tmp_path / path).imported
        every_word = figure.beside.where.items()
        where = {words: values for words, values in every_word if words not in LEFT_OUT}
        shown = figure.model_copy(
            update={"beside": figure.beside.model_copy(update={"where": where})}
        )
        kept = {
            variable: value[0] if isinstance(value, list) else value
            for variable, value in figure.runs.items()
        }
        for number, values in enumerate(where.values(), 1):
            every = {"traffic.rate": "1 Mpkt/s", "dut.tuning": "none", **kept, **values}
            write_run(ours, number, every, packets=500, rate=RATES.get(name, 1_000_000))
        if not where:
            continue
        runs = list(load_experiment(ours).finished)
        drawn = arrange(shown, "one", runs, partial(set_beside, published=trees[path]))
        marks = [mark for panel in drawn.panels for mark in panel.marks]
        assert len({mark.run for mark in marks if mark.role == "published"}) == len(runs), name
    assert len(beside) == 14


TREES = ("containerized-low-latency", "container-in-low-latency", "cgroups-nfv")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int, str], Cell]:
    database = tmp_path_factory.mktemp("published") / "results.duckdb"
    for tree in TREES:
        import_tree(PUBLISHED / tree, database)
    found = table6(read([("", database)]))
    assert len(found) == 2 * len(PRINTED)
    return {(c.technology, c.networking, c.scenario, c.system[0]): c for c in found}


@needs_published
@pytest.mark.parametrize(
    ("technology", "networking", "kernel", "latency", "reading"),
    [
        ("container", "kernel space", "vanilla", 9_969_078, "same"),
        ("container", "kernel space", "rt", 100_190, "same"),
        ("container", "user space", "rt", 108_857, "same"),
        ("vm", "user space", "vanilla", 840_629, "same"),
        ("vm", "user space", "rt", 124_120, "same"),
        # The article says that it shows the worst repeat, and does not.
        ("container", "user space", "vanilla", 1_231_923, "higher"),
        ("bare-metal", "user space", "rt", 122_976, "higher"),
        # Only first repeats are there, and those at 10 kpkt/s are none of the table's.
        ("bare-metal", "user space", "vanilla", 148_718, "lower"),
    ],
)
def test_the_cells_that_the_data_cover(
    cells: dict[tuple[str, str, int, str], Cell],
    technology: str,
    networking: str,
    kernel: str,
    latency: int,
    reading: str,
) -> None:
    cell = cells[technology, networking, 1, kernel]
    assert cell.worst is not None and cell.worst.maximum == latency
    assert (cell.reading, cell.runs) == (reading, 1)


@needs_published
def test_interrupt_experiments_and_other_forwarders_are_in_no_cell(
    cells: dict[tuple[str, str, int, str], Cell],
) -> None:
    assert {cell.reading for cell in cells.values() if cell.scenario == 2} == {"not imported"}


@needs_published
def test_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    tell([PUBLISHED / tree for tree in TREES], tmp_path / "page.md", tmp_path / "figures")
    expected = (DOCS / "published.md").read_text("utf-8")
    assert (tmp_path / "page.md").read_text("utf-8") == expected, "run 'make docs-published'"
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == sorted(path.name for path in (DOCS / "published").iterdir())


PAIRS = 20_000


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, traffic.Pair]:
    return traffic.variants(tmp_path_factory.mktemp("captures"), PAIRS)


def test_all_ways_find_the_percentiles_of_the_traffic(captures: dict[str, traffic.Pair]) -> None:
    ways = evaluate.ways(captures, rounds=2)
    timing.in_turn(ways)
    assert all(len(way.seconds) == 2 for way in ways)
    lines = list(timing.table(ways, reading=ways[0], ours=ways[1]))
    assert [line[:42].strip() for line in lines] == ["", *(way.name for way in ways)]
    assert [line.split()[-1] for line in lines if "program" in line] == [
        f"{way.peak / timing.MIB:,.0f}" for way in ways if way.peak
    ]


def test_so_does_postgresql(captures: dict[str, traffic.Pair]) -> None:
    binaries = postgres.programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    with postgres.cluster(binaries) as address:
        timing.in_turn(evaluate.postgresql_ways(captures["plain"], address))


@pytest.mark.parametrize("kind", long.FORMATS)
def test_long_captures_hold_what_they_should(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "BLOCK", PAIRS // 3)
    assert long.measure(kind, PAIRS, rounds=1).peak > 0


def test_a_wrong_answer_is_noticed(captures: dict[str, traffic.Pair]) -> None:
    plain = captures["plain"]
    wrong = [*plain.percentiles[:-1], plain.percentiles[-1] + 1]
    with pytest.raises(AssertionError, match="sloppy: other percentiles"):
        Way("sloppy", plain, lambda _pair: Answer(wrong), rounds=1).measure()


def test_percentiles_of_counts_are_those_of_the_values() -> None:
    values = np.random.default_rng(3).integers(0, 50, 999)
    expected = np.quantile(values, papers(), method="inverted_cdf").tolist()
    assert traffic.percentiles(np.bincount(values)) == expected


def test_memory_is_that_of_the_command_alone() -> None:
    ballast = np.ones(40_000_000)
    small = process.run("cat", "/dev/null").peak
    large = process.run("python3", "-c", "held = b'x' * 100_000_000").peak
    assert small < 50_000_000
    assert 100_000_000 < large < ballast.nbytes


@pytest.mark.parametrize(
    "way",
    [
        by_scipy,
        pytest.param(
            by_evd,
            marks=pytest.mark.skipif(
                shutil.which("Rscript") is None, reason="R is not installed (r-cran-evd)"
            ),
        ),
    ],
)
@pytest.mark.parametrize("xi", [-0.2, 0.0, 0.4])
def test_no_larger_than_those_of_others(way: Estimator, xi: float) -> None:
    random = np.random.default_rng(round(1000 * xi) + 1000)
    samples = stats.genpareto.rvs(xi, size=(40, 500), random_state=random)
    ours, theirs = errors(by_tailtap(samples), xi), errors(way(samples), xi)
    assert ours == pytest.approx(theirs, rel=0.05) or all(np.array(ours) <= theirs)
    assert ours[0] < 0.1 and ours[1] < 0.3
