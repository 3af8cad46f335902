"""Trees that strangers made: what is wrong with one file costs that file, and is told."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from pos_trees import COMMAND, write_crate, write_old_tree
from published_trees import write_rates

from tailtap.analysis.runs.reader import read_runs
from tailtap.base.foreign import TABLE_BYTES
from tailtap.records.printed import ImportRecord
from tailtap.records.record import as_json
from tailtap.results.importers.importer import import_tree
from tailtap.show.report import write_report

LOOPS = [{"pkt_rate": rate} for rate in (100_000, 200_000)]
CAPTURE = "latencies-pre-rate10000-repeat0.pcap.zst"


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
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 600_000_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


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
