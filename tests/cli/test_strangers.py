"""What is wrong on purpose: one line, and nothing else is read, written or left.

Tests stand behind sentences of SECURITY.md on files that tailtap reads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from experiment_folders import write_experiment
from made_records import made
from program import TAILTAP, Finished, in_process, one_line_error
from sites import FILE, write_site

from tailtap.analysis.runs.folder import STAMP_HEADER, ExperimentFolder, RunFolder, locked
from tailtap.base.errors import InputError
from tailtap.base.files import DRAFT
from tailtap.records.record import read
from tailtap.records.site import SiteRecord
from tailtap.results.database import refresh
from tailtap.show.reproduce.captures import evaluate_captures


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("published"))


@pytest.fixture
def site(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "site"))


@pytest.fixture
def experiment(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published.parent / "experiment", tmp_path / "experiment"))


def stamps_of(experiment: Path) -> Path:
    return min(experiment.glob("runs/*/egress.stamps"))


@pytest.mark.parametrize("kind", ["link", "pipe", "holes"])
def test_what_was_measured_is_in_the_folder(experiment: Path, kind: str) -> None:
    """Through a link, the times of a file that only root may read would be in the results."""
    stamps, outside = stamps_of(experiment), experiment.parent / "outside"
    if kind == "holes":
        os.truncate(stamps, 1 << 41)
    else:
        stamps.rename(outside)
        os.mkfifo(stamps) if kind == "pipe" else stamps.symlink_to(outside)
    told = {"link": "a link to a place outside", "pipe": "no regular file", "holes": "are holes"}
    for command in ("evaluate", "model", "explain", "report"):
        options = ("--late", "p99") if command == "explain" else ()
        done = in_process(command, experiment, *options)
        assert done.returncode != 70 and "Traceback" not in done.stderr, done
    assert told[kind] in one_line_error(in_process("evaluate", experiment, "--replace"), 2)
    if kind == "holes":  # named by the user, too: to read terabytes of nothing takes days
        before = stamps.with_name("ingress.stamps")
        assert told[kind] in one_line_error(in_process("evaluate", before, stamps), 2)


@pytest.mark.parametrize("place", ["/", "../outside", "inside"])
def test_figures_of_a_folder_are_beside_what_is_in_it(experiment: Path, place: str) -> None:
    outside = experiment.parent / "outside"
    outside.mkdir()
    (experiment / "inside").symlink_to(outside)
    (experiment / "experiment.yaml").write_text(
        "name: a\nfigures:\n- {kind: hdr, beside: "
        f"{{path: {place}, where: {{wire: {{dut.platform: wire}}}}}}}}\n"
    )
    done = in_process("report", experiment)
    assert done.returncode == 0, done
    assert "leads out of" in (experiment / "report/index.html").read_text()


@pytest.mark.parametrize("kind", ["link", "zero", "pipe"])
def test_an_experiment_file_in_a_folder_is_its_own(experiment: Path, kind: str) -> None:
    file = experiment / "experiment.yaml"
    file.unlink(missing_ok=True)
    (experiment.parent / "secret").write_text("name: secret\nquestion: What is it?\n")
    match kind:
        case "link":
            file.symlink_to(experiment.parent / "secret")
        case "zero":
            file.symlink_to("/dev/zero")
        case _:
            os.mkfifo(file)
    done = in_process("report", experiment)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done
    page = experiment / "report/index.html"
    assert not page.exists() or "What is it?" not in page.read_text()


def test_a_history_is_written_through_no_link(experiment: Path, tmp_path: Path) -> None:
    history, canary = tmp_path / "history.duckdb", tmp_path / "canary"
    words = (
        "history",
        "add",
        experiment,
        "--commit",
        "a",
        "--history",
        history,
        "--date",
        "2026-01-01",
    )
    history.with_name("history.duckdb.wal").symlink_to(canary)
    assert "this is a link" in one_line_error(in_process(*words), 2)
    assert not canary.exists() and not history.exists()


@pytest.mark.parametrize("slug", ["/tmp/canary", "../canary", "a\0b", "x" * 300, "\u00e4" * 200])
def test_a_run_of_a_site_may_be_called_anything(site: Path, slug: str) -> None:
    told = read(site / "site.json", SiteRecord)
    told.runs = told.runs[:1]
    told.runs[0].slug = slug
    assert evaluate_captures(site, told, None).answer == "reproduced"
    assert [path.name for path in site.parent.iterdir()] == ["site"]
    assert not Path("/tmp/canary").exists()


@pytest.mark.parametrize("cpus", ["0-x", "-", "0-99999999999", "0-1,,"])
def test_cpus_of_a_record_that_are_none(experiment: Path, cpus: str) -> None:
    for record in experiment.glob("runs/*/run.json"):
        told = json.loads(record.read_text())
        told["instruments"] = {"taps": {"facts": [], "files": [], "cpus": cpus}}
        record.write_text(json.dumps(told))
    assert in_process("report", experiment).returncode == 0


def test_captures_that_are_no_files_are_not_published(experiment: Path) -> None:
    stamps = stamps_of(experiment)
    stamps.unlink()
    os.mkfifo(stamps)
    done = in_process("publish", experiment, "--captures", "embed", "--quiet")
    assert "no regular file" in one_line_error(done, 2)


def test_what_a_killed_publication_leaves_is_removed(experiment: Path) -> None:
    """And names on a site are text, in Markdown too, which takes HTML as it is."""
    name = "<img src=x onerror=alert(1)>"
    (experiment / "experiment.yaml").write_text(FILE.replace("name: published", f"name: {name!r}"))
    for record in experiment.glob("runs/*/run.json"):
        record.write_text(json.dumps({**json.loads(record.read_text()), "name": name}))
    words = ["publish", str(experiment), "--out", str(experiment.parent / "here/site")]
    here = experiment.parent / "here"
    with subprocess.Popen([TAILTAP, *words, "--quiet"]) as killed:
        while killed.poll() is None and not list(here.glob(f"{DRAFT}*/runs")):
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    (here / f"{DRAFT}busy").mkdir()
    assert len(list(here.glob(f"{DRAFT}*"))) == 2
    with locked(here / f"{DRAFT}busy"):  # another one is at work
        assert in_process(*words).returncode == 0
    assert sorted(path.name for path in here.iterdir()) == [f"{DRAFT}busy", "site"]
    for page in (*here.glob("site/*.html"), here / "site/README.md"):
        assert "<img src=x" not in page.read_text(), page
    assert "&lt;img" in (here / "site/README.md").read_text()


def test_a_working_folder_that_was_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'
    for words in (("doctor",), ("report", "x")):
        done = subprocess.run(
            ["sh", "-c", script, "sh", TAILTAP, *words], check=False, capture_output=True, text=True
        )
        assert done.returncode in (0, 2) and "bug" not in done.stderr, done


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

    def __init__(self, measured: Path, top: Path, words: tuple[str, ...]) -> None:
        self.folder, self.outside = top / "folder", top / "outside"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.outside, ignore_errors=True)
        shutil.copytree(measured / "folder", self.folder)
        self.outside.mkdir()
        self.words = [
            word.format(folder=self.folder, run=self.folder / "runs/001-traced",
                        published=measured / "published", samples=measured / "irq.csv")
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
def test_nothing_is_written_through_links(measured: Path, tmp_path: Path, name: str) -> None:
    words = COMMANDS[name]
    clean = Place(measured, tmp_path, words)
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
        place = Place(measured, tmp_path, words)
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
        place = Place(measured, tmp_path, words)
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


def test_a_named_folder_may_be_a_link(measured: Path, tmp_path: Path) -> None:
    place = Place(measured, tmp_path, ("report", "{folder}", "--out", "{folder}/r"))
    (place.folder / "r").symlink_to(place.outside)
    done = in_process(*place.words)
    assert done.returncode == 0 and (place.outside / "index.html").is_file(), done


def test_a_device_may_be_named(measured: Path, tmp_path: Path) -> None:
    for words in (COMMANDS["verdict"], COMMANDS["host-export"]):
        place = Place(measured, tmp_path, (*words[:-1], "/dev/null"))
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
    measured = content(tmp_path)
    for command in (
        ("export", experiment, "--to", "hgrm", "--out", tmp_path / "x/y"),
        ("model", experiment, "--out", tmp_path / "x/y"),
    ):
        done = in_process(*command)
        assert done.returncode != 70 and "Traceback" not in done.stderr, done
        made = content(tmp_path).keys() - measured.keys()
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


@pytest.mark.parametrize("file", ["../../secret.stamps", "/etc/passwd", ".."])
def test_files_of_a_record_stay_in_its_folder(measured: Path, tmp_path: Path, file: str) -> None:
    place = Place(
        measured, tmp_path, ("evaluate", "{folder}", "--trim", "1 ms", "--out", "{folder}/a")
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
