"""Crates of pos and published result files: what can be said of them."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard
from program import in_process
from published import PUBLISHED, needs_published

from tailtap.base.errors import InputError
from tailtap.records.site import ReproductionRecord
from tailtap.show.reproduce import Asked, reproduce
from tailtap.show.reproduce.crate import crate_folder

CONTENT = b"a result"
FILES = {
    "scripts/dut/2026-01-01_10-00-00_000000_send_run0.loop": b'{"pkt_rate": 1000}',
    "config/allocation.json": b"{}",
    "files/dut/logs_run0/more.txt": b"more",
    "alone.txt": b"alone",
}


def write_crate(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "result.csv").write_bytes(CONTENT)
    loop = next(iter(FILES))
    graph = [
        {"@id": "./", "@type": "Dataset", "name": "A crate"},
        {"@id": "result.csv", "@type": "File", "contentSize": str(len(CONTENT)),
         "sha256": sha256(CONTENT).hexdigest()},
        {"@id": loop, "@type": "LoopRun", "contentSize": str(len(FILES[loop]))},
        {"@id": "files/dut/logs_run0/", "@type": "Dataset"},
    ]  # fmt: skip
    (folder / "ro-crate-metadata.json").write_text(json.dumps({"@graph": graph}))
    return folder


def command(crate: Path | str) -> tuple[int, str, str]:
    """Status of `tailtap reproduce`, its first and its last line."""
    run = in_process("reproduce", crate, "--quiet")
    assert run.stderr == ""
    lines = run.stdout.splitlines()
    return run.returncode, lines[0], lines[-1]


def told(found: ReproductionRecord) -> dict[str, str]:
    return {one.what: one.reason for step in found.steps for one in step.findings}


def test_a_crate(tmp_path: Path) -> None:
    crate = write_crate(tmp_path / "crate")
    found = reproduce(tmp_path, "given", Asked())
    assert (found.kind, found.name, found.answer) == ("crate", "A crate", "not shown")
    assert found.about[-1].startswith("entities: 4, with 0 ExperimentNode")
    said = told(found)
    assert "has no checksum" in said[next(iter(FILES))]
    assert "is named by no entity" in said["alone.txt"]
    assert "has none of its own" in said["files/dut/logs_run0/more.txt"]
    assert "result.csv" not in said and said["latencies"].startswith("1 of 1 runs")
    title = "A crate: crate of the RISE profile"
    assert command(f"file://{crate}") == (5, title, "answer: not shown")
    (crate / "result.csv").write_bytes(b"A result")
    assert command(crate) == (1, title, "answer: contradicted")
    (crate / next(iter(FILES))).write_bytes(b"{}")
    said = told(found := reproduce(tmp_path, "given", Asked()))
    assert found.answer == "contradicted" and "it was changed" in said["result.csv"]
    assert "it has 2 B, and the crate says 18 B" in said[next(iter(FILES))]
    (crate / "result.csv").unlink()
    assert (
        "is missing: the crate names it" in told(reproduce(crate, "given", Asked()))["result.csv"]
    )


def test_one_crate_is_asked_for(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_crate(tmp_path / name)
    with pytest.raises(InputError, match="it holds 2 crates: give one of"):
        crate_folder(tmp_path)
    with pytest.raises(InputError, match="only a site of `tailtap publish` says how"):
        reproduce(tmp_path / "one", "given", Asked("small"))


@needs_published
def test_the_crate_of_the_profile() -> None:
    found = reproduce(PUBLISHED.parent / "rise", "rise", Asked())
    assert (found.kind, found.answer) == ("crate", "not shown")
    assert "entities: 856, with 2 ExperimentNode, 17 CommandFile, 144 LoopRun" in found.about
    assert found.steps[0].checked == 693 and found.steps[1].checked == 72
    assert set(told(found)) == {"693 files", "264 files", "latencies"}


@needs_published
def test_published_files_agree_and_a_changed_number_is_found(tmp_path: Path) -> None:
    tree = Path(shutil.copytree(PUBLISHED / "cgroups-nfv/measurements/v1", tmp_path / "v1"))
    found = reproduce(tree, "v1", Asked())
    assert (found.kind, found.answer, found.steps[0].findings) == ("results", "reproduced", [])
    (file,) = tree.glob("*.percentiles.csv.zst")
    change(file, b",5045,", b",5145,")
    (file,) = tree.glob("*.worst.csv.zst")
    latency, before, *more = zstandard.decompress(file.read_bytes()).splitlines()[1].split(b",")
    sooner = [b"%d" % (int(latency) - 1000), b"%d" % (int(before) + 1000), *more]
    change(file, b",".join([latency, before, *more]), b",".join(sooner))
    found = reproduce(tree, "v1", Asked())
    (said,) = told(found).values()
    assert found.answer == "contradicted"
    assert "1 of 275 percentiles are not where its histogram ends" in said
    assert "the worst packets are not the end of its histogram" in said


def change(file: Path, old: bytes, new: bytes) -> None:
    text = zstandard.decompress(file.read_bytes())
    assert old in text
    file.write_bytes(zstandard.compress(text.replace(old, new, 1)))


@needs_published
def test_the_printed_table() -> None:
    found = reproduce(PUBLISHED / "containerized-low-latency", "tree", Asked())
    files, table = found.steps
    assert (files.answer, files.checked) == ("reproduced", 28)
    assert (table.answer, table.checked) == ("contradicted", 8)
    said = told(found)
    assert (
        "1,231.92 us where 659.25 is printed"
        in said["container, user space, vanilla, non-optimized"]
    )
    assert len(said) == 3
