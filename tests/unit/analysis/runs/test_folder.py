"""Run folders: nothing half written, nothing lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from made_records import made

from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.base.errors import InputError
from tailtap.base.files import DRAFT, read_json, write_json


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"status": "running"})
    with pytest.raises(TypeError):
        write_json(path, {"status": "done", "oops": object()})
    assert read_json(path) == {"status": "running"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_damaged_files_are_input_errors(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(InputError, match=r"run\.json: cannot read it"):
        read_json(path)
    for content, says in (('{"status": "do', "no JSON file"), ("[]", "holds no JSON object")):
        path.write_text(content)
        with pytest.raises(InputError, match=says):
            read_json(path)


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_only_done_is_done(tmp_path: Path, status: str) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.done
    folder.write(made(status=status))
    assert not folder.done
    folder.write(made())
    assert folder.done
    folder.record.write_text('{"status": "done"')
    assert not folder.done


def finished(folder: RunFolder) -> None:
    """What a run leaves, with something in every file."""
    folder.start_anew()
    folder.evaluation.mkdir()
    stamps = (folder.ingress, folder.egress)
    for path in (*stamps, folder.generator, folder.evaluation / "evaluation.json"):
        path.write_text("content")
    (folder.evaluation / "worst.parquet").write_text("content")
    folder.write(made())


@pytest.mark.parametrize(
    "name",
    [
        "ingress.stamps",
        "egress.stamps",
        "generator.json",
        "evaluation/evaluation.json",
        "evaluation/worst.parquet",
    ],
)
def test_a_run_with_an_empty_file_or_without_results_is_not_whole(
    tmp_path: Path, name: str
) -> None:
    folder = RunFolder(tmp_path / "runs" / "001-a")
    finished(folder)
    assert folder.whole
    (folder.path / name).write_text("")
    assert folder.done and not folder.whole
    if name.endswith(".json"):
        (folder.path / name).unlink()
        assert not folder.whole
    shutil.rmtree(folder.evaluation)
    assert not folder.whole


def test_stamps_can_be_taken_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "001-a")
    finished(folder)
    for path in folder.stamps:
        path.unlink()
    assert folder.whole
    folder.write(made(status="failed"))
    assert not folder.whole


def test_all_of_a_run_is_on_the_disk_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[Path] = []
    really = os.fsync

    def fsync(opened: int) -> None:
        really(opened)
        synchronised.append(Path(f"/proc/self/fd/{opened}").readlink())

    monkeypatch.setattr("os.fsync", fsync)
    folder = RunFolder(tmp_path / "experiment" / "runs" / "001-a")
    finished(folder)
    # The name of each new folder first.
    assert synchronised[:3] == [tmp_path, tmp_path / "experiment", folder.path.parent]
    record = len(synchronised) - 2
    before = synchronised[3:record]
    files = {path for path in folder.path.rglob("*") if path != folder.record}
    assert {*files, folder.path, folder.path.parent} == set(before)
    assert before.index(folder.evaluation) > before.index(folder.evaluation / "worst.parquet")
    assert synchronised[record].parent == folder.path
    assert synchronised[record].name.startswith(DRAFT)
    assert synchronised[-1] == folder.path


def test_starting_anew_forgets_the_earlier_attempt(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "001-a")
    folder.start_anew()
    (folder.path / "ingress.stamps").write_bytes(b"half")
    folder.start_anew()
    assert list(folder.path.iterdir()) == []


def test_one_runner_at_a_time(tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path)
    with (
        folder.locked(),
        pytest.raises(InputError, match="another tailtap"),
        folder.locked(),
    ):
        pass
    with folder.locked():
        pass
