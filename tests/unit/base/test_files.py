"""Files that appear whole or not at all, those of strangers, and locks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import zstandard

from tailtap.analysis.runs.folder import locked
from tailtap.base.errors import InputError, MachineError, Occupied
from tailtap.base.files import drafted, opened, read_json, require_new
from tailtap.base.foreign import (
    MAX_DEPTH,
    YAML_BYTES,
    files_below,
    parse_json,
    parse_yaml,
    read_bytes,
    storable,
)
from tailtap.base.locks import lock
from tailtap.base.writing import refused, writing
from tailtap.host.cpu import resctrl


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


NOBODY = 65534


@contextmanager
def shared(path: Path, user: int) -> Iterator[None]:
    """Another process, of another user, holds a shared lock."""
    script = (
        "import fcntl, os, sys; os.setuid(int(sys.argv[2])); "
        "held = os.open(sys.argv[1], os.O_RDONLY); "
        "fcntl.flock(held, fcntl.LOCK_SH); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(path), str(user)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        yield
        other.communicate("\n", timeout=30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
def test_who_may_only_read_a_folder_keeps_nobody_out(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents):  # temporary folders are private
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    with shared(tmp_path, NOBODY), locked(tmp_path):
        pass
    tmp_path.chmod(0o777)  # nobody may write there now: it may be at work
    with shared(tmp_path, NOBODY), pytest.raises(InputError, match="another tailtap"):
        locked(tmp_path).__enter__()


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resctrl, "WAIT_SECONDS", 0.1)
    with shared(tmp_path, os.getuid()):
        with pytest.raises(MachineError, match=r"stays locked by process \d+ \(.*python.*end it"):
            resctrl.locked(tmp_path).__enter__()
        with pytest.raises(InputError, match="another tailtap"):
            locked(tmp_path).__enter__()
    with resctrl.locked(tmp_path), (tmp_path / "file").open("w") as file:
        assert lock(file.fileno(), tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "own").write_text("own")
    return folder


def test_a_link_is_followed_inside_the_folder_alone(tree: Path) -> None:
    (tree / "inner").mkdir()
    (tree / "inner/link").symlink_to("../own")
    assert read_bytes(tree / "inner/link", tree, 10) == b"own"
    (tree / "out").symlink_to("../secret")
    (tree / "folder").symlink_to("..")
    (tree / "zero").symlink_to("/dev/zero")
    for path in (tree / "out", tree / "folder/secret", tree / "zero", tree / "../secret"):
        with pytest.raises(ValueError, match="a link to a place outside of"):
            read_bytes(path, tree, 10)
    (tree / "self").symlink_to("self")
    with pytest.raises((ValueError, OSError)):
        read_bytes(tree / "self", tree, 10)


def test_what_is_no_regular_file_keeps_nobody_waiting(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(ValueError, match="no regular file"):
        read_bytes(tree / "pipe", tree, 10)
    with pytest.raises(ValueError, match="no regular file"):
        read_bytes(Path("/dev/zero"), Path("/dev"), 10)
    os.mkfifo(tree / "run.json")
    with pytest.raises(InputError, match=r"run\.json: .*no regular file"):
        read_json(tree / "run.json")


def test_the_size_is_bounded_before_and_after_decompressing(tree: Path) -> None:
    (tree / "large").write_bytes(b"0" * 1001)
    (tree / "large.zst").write_bytes(zstandard.compress(bytes(10_000_000)))
    for name in ("large", "large.zst"):
        with pytest.raises(ValueError, match=r"more than 0\.001 MB"):
            read_bytes(tree / name, tree, 1000)
    (tree / "fits.zst").write_bytes(zstandard.compress(bytes(1000)))
    assert read_bytes(tree / "fits.zst", tree, 1000) == bytes(1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "lie in each other"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "lie in each other"),
        ('{"a": ' * 500 + "1" + "}" * 500, "lie in each other"),
        ("9" * 400, "400 digits"),
        ("9" * 5000, "5000 digits"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"\\udcff": 1}', "half a character"),
    ],
)
def test_json_that_no_program_holds_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=rf"run\.json: .*{reason}"):
        read_json(tmp_path / "run.json")


def test_yaml_that_grows_is_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(ValueError, match="anchors and aliases"):
        parse_yaml("\n".join(rows))
    with pytest.raises(ValueError, match="too much for YAML"):
        parse_yaml("a: " + "x" * YAML_BYTES)
    with pytest.raises(ValueError, match="lists and mappings in a row"):
        parse_yaml("a: " + "[" * 10_000)
    assert parse_yaml("a: [1, 2]\nb: text") == {"a": [1, 2], "b": "text"}


def test_all_files_of_deep_folders_are_listed(tmp_path: Path) -> None:
    top = tmp_path / "t"
    deepest = top.joinpath(*["d"] * 1500)
    subprocess.run(["mkdir", "-p", deepest], check=True)
    (deepest / "last").touch()
    (top / "around").symlink_to(top)
    found = files_below(top)
    subprocess.run(["rm", "-r", top], check=True)  # shutil.rmtree calls itself for each folder
    assert found == [deepest / "last"]


def test_names_that_are_no_utf8_can_be_stored() -> None:
    name = os.fsdecode(b"a\xff")
    stored = storable({"name": [name, 1], name: ("µ",)})
    assert stored == {"name": ["a\\udcff", 1], "a\\udcff": ["µ"]}
    json.dumps(stored, ensure_ascii=False).encode()
