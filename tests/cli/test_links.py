"""Folders of results with links in them: no command changes what they lead to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from devices import Bench, sharp
from experiment_folders import write_experiment
from made_records import made
from program import Finished, in_process, one_line_error
from published_trees import write_rates
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.runs.folder import STAMP_HEADER, ExperimentFolder, RunFolder
from tailtap.base.errors import InputError
from tailtap.measure.search.methods import settings_of
from tailtap.records.interrupts import write_samples
from tailtap.results.database import refresh

COMMANDS = {
    "evaluate": ("evaluate", "{run}/ingress.stamps", "{run}/egress.stamps", "--out", "{folder}/e"),
    "evaluate-again": ("evaluate", "{folder}"),
    "evaluate-aside": ("evaluate", "{folder}", "--trim", "10 ms", "--out", "{folder}/aside"),
    "explain": ("explain", "{folder}", "--late", "p99"),
    "model": ("model", "{folder}", "--figures"),
    "model-aside": ("model", "{folder}", "--out", "{folder}/m"),
    "interrupts": ("interrupts", "{folder}", "--samples", "{samples}", "--figures"),
    "verdict": ("verdict", "{folder}", "--require", "max < 1 s", "--junit", "{folder}/j.xml"),
    "report": ("report", "{folder}"),
    "import": ("import", "{published}", "--into", "{folder}"),
    "host-export": ("host", "export", "--format", "sysctl", "--out", "{folder}/x.conf"),
    **{
        f"export-{kind}": ("export", "{folder}", "--to", kind, "--out", "{folder}/x")
        for kind in ("parquet", "csv", "hgrm", "papers", "pos", "perfetto")
    },
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with a traced run and its samples, and runs to import beside it."""
    top = tmp_path_factory.mktemp("before")
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 4, (500_000, 600_000), 0.5, random)
    write_run(
        top / "folder/runs/001-traced", simulate(arrivals(20_000, 0.5, random), blocks, random)
    )
    (top / "folder/experiment.yaml").write_text("name: traced\n")
    refresh(top / "folder")
    rows = [f"{sample * 10_000};{sample}" for sample in range(300)]
    (top / "irq.csv").write_text("\n".join(["timestamp_us;LOC_CPU1", *rows, ""]))
    (top / "published").mkdir()
    write_rates(top / "published", [20_000])
    return top


def content(folder: Path) -> dict[str, bytes | str]:
    """What is in a folder: files, folders, and where links lead."""
    return {
        str(path.relative_to(folder)): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes()
            if path.is_file() else "a folder"
        )
        for path in sorted(folder.rglob("*"))
    }  # fmt: skip


class Place:
    """A copy of the experiment, and what a user would be sorry about."""

    def __init__(self, before: Path, top: Path, words: tuple[str, ...]) -> None:
        self.folder, self.outside = top / "folder", top / "outside"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.outside, ignore_errors=True)
        shutil.copytree(before / "folder", self.folder)
        self.outside.mkdir()
        self.words = [
            word.format(folder=self.folder, run=self.folder / "runs/001-traced",
                        published=before / "published", samples=before / "irq.csv")
            for word in words
        ]  # fmt: skip

    def run(self) -> Finished:
        """Run the command, and look outside."""
        there = content(self.outside)
        done = in_process(*self.words)
        assert done.returncode != 70 and "Traceback" not in done.stderr, done
        assert content(self.outside) == there
        return done


def inodes(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_written_through_links(before: Path, tmp_path: Path, name: str) -> None:
    words = COMMANDS[name]
    clean = Place(before, tmp_path, words)
    old = inodes(clean.folder)
    done = clean.run()
    made = tmp_path / "made"
    shutil.copytree(clean.folder, made)
    new = inodes(clean.folder)
    changed = sorted(path for path, inode in new.items() if old.get(path) != inode)
    files = [path for path in changed if (made / path).is_file()]
    assert done.returncode in (0, 1), done

    # A link instead of each file, to one of the same content, and to one that is not there.
    for there in (True, False):
        place = Place(before, tmp_path, words)
        for path in files:
            outside, link = place.outside / path, place.folder / path
            outside.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            if there or path in old:
                shutil.copyfile(made / path, outside)
            link.unlink(missing_ok=True)
            link.symlink_to(outside)
        place.run()

    # A link instead of each folder in which something was made, one at a time.
    folders = {str(above) for path in changed for above in Path(path).parents} - {"."}
    for inner in sorted(folders):
        place = Place(before, tmp_path, words)
        link, outside = place.folder / inner, place.outside / "moved"
        if str(link) in place.words:
            continue  # the user named it
        if link.exists():
            link.rename(outside)
        else:
            outside.mkdir()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside)
        beside = "--out" in words or name == "import"  # another folder is made
        if "{run}" in "".join(words) or not beside:
            assert "is a link" in place.run().stderr, inner
        else:
            place.run()


def test_a_named_folder_may_be_a_link(before: Path, tmp_path: Path) -> None:
    place = Place(before, tmp_path, ("report", "{folder}", "--no-figures", "--out", "{folder}/r"))
    (place.folder / "r").symlink_to(place.outside)
    done = in_process(*place.words)
    assert done.returncode == 0 and (place.outside / "index.html").is_file(), done


def test_a_device_may_be_named(before: Path, tmp_path: Path) -> None:
    for words in (COMMANDS["verdict"], COMMANDS["host-export"]):
        place = Place(before, tmp_path, (*words[:-1], "/dev/null"))
        assert in_process(*place.words).returncode in (0, 1)
        assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "slug", ["../canary", "/tmp/canary", "..", ".hidden", "a\nb", "x" * 300, "", 7]
)
def test_a_slug_of_a_stranger_is_no_path(tmp_path: Path, slug: object) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=300)
    [record, *_] = sorted(experiment.glob("runs/*/run.json"))

    told = json.loads(record.read_text())
    record.write_text(json.dumps({**told, "slug": slug}))
    before = content(tmp_path)
    for command in (
        ("export", experiment, "--to", "hgrm", "--out", tmp_path / "x/y"),
        ("model", experiment, "--out", tmp_path / "x/y"),
    ):
        done = in_process(*command)
        assert done.returncode != 70 and "Traceback" not in done.stderr, done
        made = content(tmp_path).keys() - before.keys()
        assert all(name == "x" or name.startswith("x/y") for name in made), made


def test_roles_of_a_stranger_are_no_paths(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=300)
    (experiment / "testbed.yaml").write_text("roles: {generator: ../../canary}\n")
    error = one_line_error(
        in_process("export", experiment, "--to", "pos", "--out", tmp_path / "x/y"), 2
    )
    assert "testbed.yaml: roles.generator" in error
    assert not (tmp_path / "canary").exists()


def test_a_run_that_starts_anew_removes_nothing_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in ("runs", "earlier", "trials"):
        (outside / name / "001-a").mkdir(parents=True)
        (outside / name / "001-a/ingress.stamps").write_bytes(bytes(STAMP_HEADER + 1))
    there = content(outside)

    top = tmp_path / "out"
    top.mkdir()
    folder = ExperimentFolder(top)
    folder.runs.symlink_to(outside / "runs")
    for step in (RunFolder.put_aside, RunFolder.start_anew):
        with pytest.raises(InputError, match="out/runs: this is a link"):
            step(folder.run("001-a"))
    folder.runs.unlink()
    folder.earlier.rmdir()
    folder.run("001-a").start_anew()
    (folder.run("001-a").ingress).write_bytes(bytes(STAMP_HEADER + 1))
    folder.earlier.symlink_to(outside / "earlier")
    with pytest.raises(InputError, match="out/earlier: this is a link"):
        folder.run("001-a").put_aside()
    # The run's own folder may be one: it is replaced.
    shutil.rmtree(folder.run("001-a").path)
    folder.run("001-a").path.symlink_to(outside / "runs/001-a")
    folder.run("001-a").start_anew()
    assert not folder.run("001-a").path.is_symlink()

    settings = settings_of((0.0,), 1_000, 500_000)
    (top / "search.json").symlink_to(outside / "search.json")
    Bench(sharp(40_000)).store(top, settings)
    assert not (top / "search.json").is_symlink()
    trials = ExperimentFolder(top / "trials", top)
    (top / "trials").symlink_to(outside / "trials")
    with pytest.raises(InputError, match="out/trials: this is a link"):
        trials.run("001-a").start_anew()
    with pytest.raises(InputError, match="out/trials: this is a link"):
        trials.run("001-a").write(made(status="running"))
    assert content(outside) == there


def test_no_database_is_written_through_links(tmp_path: Path) -> None:
    for name in ("results.duckdb", "results.duckdb.wal", "results.duckdb.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "canary")
        with pytest.raises(InputError):
            refresh(tmp_path)
        (tmp_path / name).unlink()
        assert not list(tmp_path.iterdir())


def test_samples_replace_a_link(tmp_path: Path) -> None:
    path, canary = tmp_path / "interrupts.csv", tmp_path / "canary"
    canary.write_text("sings")
    path.symlink_to(canary)
    write_samples(path, [1], [1], [[]])
    assert canary.read_text() == "sings" and not path.is_symlink()


@pytest.mark.parametrize("file", ["../../secret.stamps", "/etc/passwd", ".."])
def test_files_of_a_record_stay_in_its_folder(before: Path, tmp_path: Path, file: str) -> None:
    place = Place(
        before, tmp_path, ("evaluate", "{folder}", "--trim", "1 ms", "--out", "{folder}/a")
    )
    record = place.folder / "runs/001-traced/run.json"
    told = json.loads(record.read_text())
    points = [{"before": name, "file": file} for name in "abc"]
    record.write_text(json.dumps({**told, "instruments": {"x": {"facts": [], "files": [file]}}}))
    assert "run.json: instruments.x.files.0: " in one_line_error(place.run(), 2)
    record.write_text(
        json.dumps({**told, "instruments": {"taps": {"facts": [], "files": [], "points": points}}})
    )
    done = in_process("evaluate", place.folder)
    assert "run.json: instruments.taps.points.0.file: " in one_line_error(done, 2)
