"""Folders, sites and places that are wrong on purpose: one line, and nothing else is read or left.

Each test stands behind a sentence of SECURITY.md on files that tailtap reads.
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
from program import TAILTAP, in_process, one_line_error
from sites import FILE, write_site

from tailtap.analysis.runs.folder import locked
from tailtap.base.files import DRAFT
from tailtap.records.record import read
from tailtap.records.site import SiteRecord
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
    done = in_process("report", experiment, "--no-figures")
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
    done = in_process("report", experiment, "--no-figures")
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
    assert in_process("report", experiment, "--no-figures").returncode == 0


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
