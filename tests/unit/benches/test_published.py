"""The published data, compared: table 6 from the imported files, and the page that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from published import PUBLISHED, needs_published

from benches.published import DOCS, tell
from tailtap.analysis.compare.comparison import read
from tailtap.results.importers.importer import import_tree
from tailtap.show.reproduce.results import PRINTED, Cell, table6

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
