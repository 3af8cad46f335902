"""Importers, and trees that strangers made."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from pos_trees import COMMAND, write_crate, write_old_tree
from published import POST, PRE, PUBLISHED, content, needs_captures, needs_published
from published_trees import write_rates, write_tree
from runs import rows as stored

from tailtap.analysis import evaluation
from tailtap.analysis.runs.reader import read_runs
from tailtap.base.errors import InputError
from tailtap.base.foreign import TABLE_BYTES
from tailtap.records.printed import ImportRecord
from tailtap.records.record import as_json
from tailtap.results.exporters import export
from tailtap.results.importers.importer import import_tree
from tailtap.results.importers.published import COLUMNS, read_file
from tailtap.show.report import write_report


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("import") / "results.duckdb"
    found = import_tree(PUBLISHED, database)
    assert (found.runs, found.new) == (33, 33)
    return database


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
    assert "11,753,554 packets (6.7 %) after" in told[0][3]
    silent = stored(
        imported,
        "SELECT max(unmatched_egress / (matched + unmatched_egress)) FROM evaluations "
        "WHERE run NOT IN (SELECT run FROM warnings WHERE code = 'unmatched-egress')",
    )
    assert silent[0][0] < 0.001


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


LOOPS = [{"pkt_rate": rate} for rate in (100_000, 200_000)]


def _import(tree: Path) -> ImportRecord:
    return import_tree(tree, tree.parent / "results.duckdb")


def _replace(path: Path, make: Callable[[Path], object]) -> Path:
    path.unlink()
    make(path)
    return path


def _file(tree: Path, kind: str) -> Path:
    (path,) = tree.rglob(f"*.{kind}.csv")
    return path


def _bomb(path: Path) -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    with path.with_name(f"{path.name}.zst").open("wb") as file:
        for _ in range(TABLE_BYTES // 1_000_000 * 15):
            file.write(compressor.compress(bytes(1_000_000)))
        file.write(compressor.flush())


def _aliases(path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path.write_text("\n".join(rows))


@pytest.fixture
def little_memory() -> Iterator[None]:
    """So much room that a file that is read whole does not fit into it."""
    # What can be written to: addresses that allocators of threads only reserve do not count.
    [used] = re.findall(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text())
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(used) * 1024 + 600_000_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "a link to a place outside"),
        (lambda path: path.symlink_to("/etc/passwd"), "a link to a place outside"),
        (_aliases, "anchors and aliases"),
        (lambda path: path.write_text('{"a":' * 100_000), "no JSON"),
        (lambda path: path.write_text('{"a": ' + "[" * 900 + "]" * 900 + "}"), "in each other"),
        (lambda path: path.write_text('{"a": ' + "9" * 400 + "}"), "400 digits"),
        (lambda path: path.write_text('{"a": "' + "x" * 9_000_000 + '"}'), "more than 8 MB"),
    ],
)
@pytest.mark.parametrize("name", ["loop", "crate", "allocation", "hardware"])
@pytest.mark.usefixtures("little_memory")
def test_metadata_that_hang_or_grow_are_skipped(
    tmp_path: Path, name: str, make: Callable[[Path], object], reason: str
) -> None:
    tree = write_crate(tmp_path / "tree", LOOPS)
    path = {
        "loop": next((tree / "scripts/a").glob("*_run01.loop")),
        "crate": tree / "ro-crate-metadata.json",
        "allocation": tree / "config/allocation.json",
        "hardware": tree / "config/a/hardware.json",
    }[name]
    _replace(path, make)
    if not path.is_file():
        reason = ""  # a pipe is not taken for metadata at all where the file is optional
    found = _import(tree)
    assert found.runs == 2
    told = [one.message for one in found.warnings if one.code == "file-damaged"]
    if name == "loop" or (reason and name != "crate"):
        assert any(path.name in message and reason in message for message in told), told
    assert all("\n" not in message for message in told)


@pytest.mark.usefixtures("little_memory")
def test_results_that_grow_or_lead_elsewhere_are_skipped(tmp_path: Path) -> None:
    tree = write_rates(tmp_path, [10_000])
    _replace(_file(tree, "hist"), _bomb)
    _replace(_file(tree, "stats"), lambda path: path.symlink_to("/etc/passwd"))
    _replace(_file(tree, "worst"), os.mkfifo)
    _replace(_file(tree, "jitterpre"), lambda path: path.symlink_to("/dev/zero"))
    found = _import(tree)
    assert found.runs == 1
    told = "\n".join(one.message for one in found.warnings if one.code == "file-damaged")
    assert told.count("skipped, it cannot be read") == 4, told
    assert "more than 64 MB" in told and "no regular file" in told
    assert told.count("a link to a place outside") == 2
    (run,) = read_runs(tmp_path / "results.duckdb").runs
    assert run.evaluation is not None and run.evaluation.listed


@pytest.mark.parametrize(
    ("count", "reason"),
    [("-5", "is -5, below 0"), (str(2**62), r"more than 2\^53"), ("9" * 30, "")],
)
def test_counts_that_nobody_counted_are_skipped(tmp_path: Path, count: str, reason: str) -> None:
    tree = write_rates(tmp_path, [10_000])
    path = _file(tree, "hist")
    head, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, f"{first.split(',')[0]},{count}", *rows, ""]))
    found = _import(tree)
    assert [one.code for one in found.warnings] == ["file-damaged"]
    assert path.name in found.warnings[0].message and reason.replace("\\", "") in (
        found.warnings[0].message
    )
    assert found.runs == 1


def test_histograms_and_logs_of_too_many_packets_are_skipped(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS)
    (tree / "loadgen/histogram_run0.csv").write_text(f"1,{'9' * 15}\n" * 20)
    (tree / "loadgen/throughput_run1.log").write_text(
        f"RX: total {'9' * 15} packets\nTX: total {'9' * 15} packets\n" * 30_000
    )
    found = _import(tree)
    told = [one.message for one in found.warnings if one.code == "file-damaged"]
    assert len(told) == 2 and all("more than 2^53" in message for message in told), told


def test_names_that_say_what_cannot_be_cost_no_run(tmp_path: Path) -> None:
    tree = write_rates(tmp_path, [0, 10_000, 10**30])
    for path in (tree / "wire").glob("*rate10000*"):
        shutil.copy(path, path.with_name(path.name.replace("repeat0", "repeat99999999999")))
    for path in (tree / "wire").glob("*bucket_size*"):
        path.rename(path.with_name(path.name.replace("bucket_size100.", "bucket_size0.")))
    found = _import(tree)
    told = [one.message for one in found.warnings if one.code == "name-unlikely"]
    for name in ("rate0", f"rate{10**30}", "repeat99999999999"):
        assert any(f"'{name}'" in message for message in told), (name, told)
    runs = read_runs(tmp_path / "results.duckdb").runs
    assert {run.repeat for run in runs} == {1}
    assert {run.rate for run in runs} <= {None, 10_000}
    write_report(tmp_path / "results.duckdb", tmp_path / "report", figures=False)


ANYTHING = [0, -1, 10**30 // 10**12, 10**19, 1.5, "fast", None, True, [1]]


@pytest.mark.parametrize("key", ["pkt_rate", "repeat", "pkt_sz"])
def test_variables_may_be_anything(tmp_path: Path, key: str) -> None:
    loops = [{key: value} for one in ANYTHING for value in (one, {"a": one})]
    tree = write_old_tree(tmp_path / "tree", [*LOOPS, *loops])
    found = _import(tree)
    assert found.runs == 2 + len(loops)
    assert not [one for one in found.warnings if one.code == "file-damaged"]
    assert len(read_runs(tmp_path / "results.duckdb").runs) == 2 + len(loops)


def test_names_that_are_no_utf8_are_imported(tmp_path: Path) -> None:
    tree = write_rates(tmp_path, [10_000])
    odd = tmp_path / os.fsdecode(b"many\xff")
    tree.rename(odd)
    (odd / "wire").rename(odd / os.fsdecode(b"wire\xfe"))
    write_old_tree(odd / os.fsdecode(b"pos\xfd"), LOOPS, (os.fsdecode(b"h\xfc"),))
    assert _import(odd).runs == 3
    again = _import(odd)
    assert (again.runs, again.new, again.replaced) == (3, 0, 0)
    runs = read_runs(tmp_path / "results.duckdb").runs
    assert {run.experiment for run in runs} == {r"many\udcff", r"pos\udcfd"}
    json.dumps([as_json(run.record) for run in runs if run.record], ensure_ascii=False).encode()


def test_a_crate_asks_for_no_file_of_this_machine(tmp_path: Path) -> None:
    tree = write_crate(tmp_path / "tree", LOOPS)
    path = tree / "ro-crate-metadata.json"
    crate = json.loads(path.read_text())
    names = ["/etc/passwd", "../../../../etc/passwd", "a" * 5000, "%00", "config/a/hardware.json"]
    crate["@graph"] += [{"@id": name, "@type": "File"} for name in names]
    path.write_text(json.dumps(crate))
    (message,) = [one.message for one in _import(tree).warnings if one.code == "crate-incomplete"]
    assert "4 of the files" in message


def test_captures_elsewhere_are_not_evaluated(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS[:1])
    (tree / "loadgen/latencies-pre_run0.pcap").symlink_to("/etc/passwd")
    os.mkfifo(tree / "loadgen/latencies-post_run0.pcap")
    found = _import(tree)
    assert found.runs == 1
    assert any("outside of" in one.message for one in found.warnings if one.code == "file-damaged")


def test_a_stem_of_a_command_is_no_pattern(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS)
    os.mkfifo(tree / "loadgen" / f"{COMMAND}_run0.status")
    assert _import(tree).runs == 2


def test_files_that_take_long_to_read_are_skipped(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS)
    (tree / "loadgen/throughput_run0.log").write_text("TX" * 5_000_000)
    shutil.copytree(write_rates(tmp_path, [10_000]), tree / "published")
    path = _file(tree, "percentiles")
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *[rows[0]] * 1_000_000, *rows, ""]))
    found = _import(tree)
    told = [one.message for one in found.warnings if one.code == "file-damaged"]
    assert len(told) == 2 and any("1000275 percentiles" in message for message in told), told
