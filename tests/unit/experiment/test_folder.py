"""Run folders: nothing half written, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailtap.errors import InputError
from tailtap.experiment.folder import ExperimentFolder, RunFolder
from tailtap.files import read_json, write_json


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
    path.write_text('{"status": "do')
    with pytest.raises(InputError, match="no JSON file"):
        read_json(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="holds no JSON object"):
        read_json(path)


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_only_done_is_done(tmp_path: Path, status: str) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.done
    folder.write({"status": status})
    assert not folder.done
    folder.write({"status": "done"})
    assert folder.done
    folder.record.write_text('{"status": "done"')
    assert not folder.done


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


def test_json_is_readable_by_people(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [1]})
    text = (tmp_path / "a.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == {"a": [1]}
