"""What `tailtap clean` takes for its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.host.clean import KINDS
from tailtap.host.journal import Journal, is_ours


@pytest.mark.parametrize("name", ["tt-0a1b2c-gen", "tt-ffffff-dut", "tt-000000-forwarder"])
def test_names_that_a_lab_gives(name: str) -> None:
    assert is_ours(name)


@pytest.mark.parametrize(
    "name",
    [
        "tt-",
        "tt-foo",
        "tt-test-1-0",
        "tt-0a1b2c",
        "tt-0a1b2c-",
        "tt-0A1B2C-gen",
        "tt-0a1b2-gen",
        "tt-0a1b2c3-gen",
        "tt-0a1b2c-gen\n",
        "my-tt-0a1b2c-gen",
        "tt-0a1b2c-../x",
        "",
    ],
)
def test_names_of_others(name: str) -> None:
    assert not is_ours(name)


def test_a_journal_gives_such_names(tmp_path: Path) -> None:
    assert is_ours(f"tt-{Journal.create(tmp_path).identity}-dut")


def test_of_folders_in_a_journal_only_ours_are_removed(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "tt-0a1b2c-forwarder", tmp_path / "tt-foo"
    for folder in (ours, foreign):
        folder.mkdir()
    entered = [str(ours), str(foreign), str(tmp_path), "/", str(tmp_path / "tt-0a1b2c-gone")]
    assert KINDS["folder"].existing(entered) == [str(ours)]
