"""Files that appear whole or not at all, and what is said where they cannot."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from program import TAILTAP

from tailtap.base.errors import MachineError, Occupied
from tailtap.base.files import drafted, opened, require_new
from tailtap.base.writing import refused, writing


def test_files_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    names = list("abcd")
    for name in names[:3]:
        (tmp_path / name).write_text("old")
    contents = {name: lambda file: file.write(b"new") for name in names}
    whole = os.replace
    for fails in (*names, None):

        def replace(source: str, target: str, **folders: int) -> None:
            if target == fails and failed.count(target) == 0:  # noqa: B023
                failed.append(target)  # noqa: B023
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            whole(source, target, **folders)

        failed: list[str] = []
        with mock.patch.object(os, "replace", replace), opened(tmp_path) as folder:
            if fails is None:
                folder.write_all(contents)
            else:
                with pytest.raises(OSError, match="Input/output error"):
                    folder.write_all(contents)
        there = {path.name: path.read_text() for path in tmp_path.iterdir()}
        old = {"a": "old", "b": "old", "c": "old"}
        assert there == (dict.fromkeys(names, "new") if fails is None else old)


def test_a_draft_takes_the_place_of_a_file_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    with pytest.raises(ValueError, match="half"), drafted(path) as draft:
        draft.write(b"half")
        raise ValueError("half")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"page": "old"}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.ENOSPC,
            "x: cannot write: No space left on device: make room",
        ),
        (errno.EROFS, "the file system is read-only: mount it writable"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EACCES, "run it as a user who may write there"),
        (errno.EIO, "see dmesg(1)"),
        (errno.ENOTDIR, "x: cannot write: Not a directory"),
    ],
)
def test_the_remedy_is_one_against_the_reason(number: int, said: str) -> None:
    error = OSError(number, os.strerror(number), "x/y")
    with pytest.raises(MachineError) as caught, writing("x"):
        raise error
    assert said in str(caught.value)
    # Libraries say it in a sentence of their own.
    words = RuntimeError(f'IO Error: Could not write "x": {os.strerror(number)}\nmore')
    assert said.partition(": cannot write: ")[2].partition(": ")[2] in str(refused("x", words))
    assert "\n" not in str(refused("x", words))
    kept = refused("x", error, "1 of 2 packets are stored")
    assert kept.what.endswith(f"{os.strerror(number)}: 1 of 2 packets are stored")
    assert (kept.place, kept.remedy) == ("x", refused("x", error).remedy)


def test_what_was_measured_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.stamps"
    require_new([path, Path(os.devnull)])
    path.touch()
    require_new([path])
    path.write_bytes(b"stamps")
    with pytest.raises(Occupied, match=r"x\.stamps: this is there, .* else: remove it$"):
        require_new([path])


def test_an_output_without_room_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [TAILTAP, "--help"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    said = "No space left on device: make room or choose another place"
    assert (run.returncode, run.stderr) == (3, f"tailtap: {said}\n")
