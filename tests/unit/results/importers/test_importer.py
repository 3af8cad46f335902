"""Published result trees in the database: all runs, their very numbers, and doubts about them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import zstandard
from published import POST, PRE, PUBLISHED, content, needs_captures, needs_published
from published_trees import write_rates, write_tree
from runs import all_rows
from runs import rows as stored

from tailtap.analysis import evaluation
from tailtap.base.errors import InputError
from tailtap.results.exporters import export
from tailtap.results.importers.importer import FIRST_NUMBER, import_tree
from tailtap.results.importers.published import COLUMNS, read_file


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("import") / "results.duckdb"
    found = import_tree(PUBLISHED, database)
    assert (found.runs, found.new) == (33, 33)
    return database


@needs_published
def test_every_published_run_is_there(imported: Path) -> None:
    assert stored(
        imported, "SELECT status, count(*), min(run), count(DISTINCT slug) FROM runs GROUP BY 1"
    ) == [("imported", 33, FIRST_NUMBER, 33)]
    rates = stored(
        imported,
        "SELECT (parameters->>'$.traffic.rate')::INT, count(*) FROM runs GROUP BY 1 ORDER BY 1",
    )
    assert rates == [(10_000, 15), (100_000, 1), (500_000, 1), (1_000_000, 14), (1_400_000, 2)]
    assert stored(imported, "SELECT count(*), count(low), count(high) FROM percentiles") == [
        (31 * 275, 0, 0)
    ]


@needs_published
def test_numbers_are_those_of_the_files(imported: Path) -> None:
    files = {
        "percentiles": "SELECT p, value FROM percentiles WHERE run = ? ORDER BY rowid",
        "hist": "SELECT bucket_ns, count FROM histogram WHERE run = ? ORDER BY rowid",
        "jitterpost": "SELECT bucket_ns, count FROM gaps WHERE run = ? AND side = 'egress' "
        "ORDER BY rowid",
        "packetratepre": "SELECT start_ns, packets FROM rates WHERE run = ? AND side = 'ingress' "
        "ORDER BY rowid",
        "worst": "SELECT latency_ns, ingress_ns, egress_ns, ltrim(key, '\\') FROM worst "
        "WHERE run = ? ORDER BY rowid",
    }
    compared = dict.fromkeys(files, 0)
    for number, source in stored(imported, "SELECT run, parameters->>'source' FROM runs"):
        folder, _, stem = source.rpartition("/")
        capture = stem.partition(".trim_ms")[0]
        for kind, sql in files.items():
            for path in Path(folder).glob(f"{capture}.*.{kind}.csv.zst"):
                rows = stored(imported, sql, number)
                width = len(rows[0])
                lines = content(path).decode().splitlines()[1:]
                # An older list of worst packets has more columns, and a backslash before the id.
                wanted = [",".join(line.replace("\\", "").split(",")[:width]) for line in lines]
                if kind == "percentiles":
                    assert rows == [
                        (float(p), int(value)) for p, value in (w.split(",") for w in wanted)
                    ]
                else:
                    assert [",".join(map(str, row)) for row in rows] == wanted, path
                compared[kind] += 1
    assert compared == {**dict.fromkeys(files, 31), "worst": 33}


@needs_published
def test_fast_runs_that_left_packets_out_are_told(imported: Path) -> None:
    told = stored(
        imported,
        "SELECT (parameters->>'$.traffic.rate')::INT, matched, unmatched_egress, message "
        "FROM warnings JOIN runs USING (run) JOIN evaluations USING (run) "
        "WHERE code = 'unmatched-egress' ORDER BY unmatched_egress DESC",
    )
    shares = [unmatched / (matched + unmatched) for _, matched, unmatched, _ in told]
    assert all(rate >= 600_000 for rate, *_ in told)
    assert [round(share, 4) for share in shares] == [0.0674, 0.0544, 0.0485, 0.0355]
    assert "11753554 packets after the device (6.74%)" in told[0][3]
    silent = stored(
        imported,
        "SELECT max(unmatched_egress / (matched + unmatched_egress)) FROM evaluations "
        "WHERE run NOT IN (SELECT run FROM warnings WHERE code = 'unmatched-egress')",
    )
    assert silent[0][0] < 0.001


@needs_published
def test_a_second_import_changes_nothing(imported: Path) -> None:
    before = all_rows(imported)
    again = import_tree(PUBLISHED, imported)
    assert (again.runs, again.new) == (33, 0)
    assert len(again.warnings) == len(before["warnings"]) == 7
    assert all_rows(imported) == before


@needs_published
def test_ranks_follow_from_the_number_of_packets(imported: Path) -> None:
    rows = stored(
        imported,
        "SELECT p, above, supported, matched FROM percentiles JOIN evaluations USING (run)",
    )
    for p, above, supported, matched in rows:
        assert above == pytest.approx((1 - p) * matched, abs=1.001)
        assert supported == (above >= 10)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that no test changes."""
    return write_tree(tmp_path_factory.mktemp("small"), packets=300)[1]


@pytest.mark.parametrize("kind", sorted(COLUMNS))
def test_a_compressed_file_cut_anywhere_is_damage(small: Path, tmp_path: Path, kind: str) -> None:
    path = next(small.rglob(f"*.{kind}.csv"))
    whole = zstandard.ZstdCompressor().compress(path.read_bytes())
    cut = tmp_path / f"{path.name}.zst"
    cut.write_bytes(whole)
    assert read_file(cut, kind).equals(read_file(path, kind))
    for length in {0, 3, len(whole) // 2, len(whole) - 1}:
        cut.write_bytes(whole[:length])
        with pytest.raises((OSError, ValueError)):
            read_file(cut, kind)


def test_our_own_export_comes_back_beside_our_own_runs(tmp_path: Path) -> None:
    experiment, tree = write_tree(tmp_path)
    database = tmp_path / "results.duckdb"
    found = import_tree(tree, database)
    assert (found.runs, found.new) == (10, 10) and not found.warnings
    shutil.copytree(experiment / "runs", tmp_path / "runs", dirs_exist_ok=True)
    assert import_tree(tree, database).new == 0
    assert stored(database, "SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1") == [
        ("done", 10),
        ("failed", 1),
        ("imported", 10),
    ]
    compared = stored(
        database,
        "SELECT theirs.p, ours.value = theirs.value, ours.above = theirs.above, "
        "ours.supported = theirs.supported "
        "FROM runs AS r JOIN runs AS i ON i.status = 'imported' AND r.status = 'done' "
        "AND i.repeat = r.repeat AND i.variables->>'source' = r.variables->>'dut.platform' "
        "AND i.parameters->>'$.traffic.rate' = r.parameters->>'$.traffic.rate' "
        "JOIN percentiles AS ours ON ours.run = r.run "
        "JOIN percentiles AS theirs ON theirs.run = i.run AND theirs.p = ours.p",
    )
    assert len(compared) >= 50 and all(all(row[1:]) for row in compared)
    same = "SELECT {} FROM evaluations JOIN runs USING (run) WHERE status = ? ORDER BY ALL"
    columns = "ingress, egress, matched, lost, unmatched_egress, max_ns"
    ours, theirs = (stored(database, same.format(columns), s) for s in ("done", "imported"))
    assert ours == theirs


def test_a_run_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    tree, database = write_rates(tmp_path, [10_000, 20_000]), tmp_path / "results.duckdb"
    assert import_tree(tree, database).new == 2
    before = stored(database, "SELECT run, value FROM percentiles ORDER BY ALL")
    moved = tmp_path / "elsewhere" / "renamed"
    shutil.move(tree, moved)
    (moved / "wire").rename(moved / "no-dut")
    for path in (moved / "no-dut").iterdir():
        path.with_name(f"{path.name}.zst").write_bytes(
            zstandard.ZstdCompressor().compress(path.read_bytes())
        )
        path.unlink()
    again = import_tree(tmp_path / "elsewhere", database)
    assert (again.runs, again.new) == (2, 0)
    assert stored(database, "SELECT run, value FROM percentiles ORDER BY ALL") == before
    assert stored(database, "SELECT DISTINCT variables->>'source' FROM runs") == [
        ("renamed/no-dut",)
    ]


def test_files_that_changed_where_they_lie_replace_what_was_imported(tmp_path: Path) -> None:
    tree, database = write_rates(tmp_path, [10_000]), tmp_path / "results.duckdb"
    [stats] = tree.rglob("*.stats.csv")
    whole = stats.read_text()
    stats.unlink()
    assert [w.code for w in import_tree(tree, database).warnings] == ["file-missing"]
    stats.write_text(whole)
    again = import_tree(tree, database)
    assert (again.runs, again.new, again.warnings) == (1, 0, [])
    assert stored(database, "SELECT count(*) FROM runs") == [(1,)]
    assert stored(database, "SELECT count(*) FROM warnings") == [(0,)]


def test_trees_of_the_same_shape_do_not_replace_each_other(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    for packets in (300, 400):
        tree = write_rates(tmp_path / str(packets), [10_000], packets=packets)
        assert import_tree(tree, database).new == 1
    # The first tree lies where the second one was, and the second one nowhere.
    shutil.rmtree(tmp_path / "400" / "many")
    shutil.move(tmp_path / "300" / "many", tmp_path / "400" / "many")
    assert import_tree(tmp_path / "400" / "many", database).new == 0
    assert stored(database, "SELECT ingress FROM evaluations ORDER BY 1") == [(300,), (400,)]


@needs_captures
def test_trims_of_one_capture_are_two_runs(tmp_path: Path) -> None:
    for trim_ms in (0, 1000):
        found = evaluation.evaluate(PRE, POST, key="signature", trim_ns=trim_ms * 1_000_000)
        found.write(tmp_path / "evaluation")
        export(tmp_path / "evaluation", "papers", tmp_path / "tree")
    database = tmp_path / "results.duckdb"
    assert import_tree(tmp_path / "tree", database).new == 2
    assert stored(
        database,
        "SELECT ingress, matched, trimmed_ingress, trimmed_egress, lost, max_ns "
        "FROM evaluations ORDER BY run",
    ) == [(300_000, 300_000, 0, 0, 0, 13_550), (300_000, 289_992, 10_008, 10_008, 0, 13_550)]


def test_what_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no such folder"):
        import_tree(tmp_path / "nowhere", tmp_path / "r")
    with pytest.raises(InputError, match="no result files"):
        import_tree(tmp_path / "empty", tmp_path / "r")
    assert not (tmp_path / "r").exists()
    _, tree = write_tree(tmp_path, packets=300)
    with pytest.raises(InputError, match="runs are imported as folders: give a folder by --into"):
        import_tree(tree, tmp_path / "others.duckdb")
