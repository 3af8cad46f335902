"""Files of strangers are read whole, in their own folder, or refused with a reason."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import zstandard

from tailtap.base.errors import InputError
from tailtap.base.files import read_json
from tailtap.base.foreign import (
    MAX_DEPTH,
    YAML_BYTES,
    files_below,
    parse_json,
    parse_yaml,
    read_bytes,
    storable,
)


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


def test_json_of_real_files_is_read() -> None:
    value = {"a": [1, -(2**63), 1.5, None, True, "µ"], "b": {"c": {}}}
    assert parse_json(json.dumps(value)) == value


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
