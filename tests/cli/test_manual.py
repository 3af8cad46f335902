"""The manual pages say what `--help` says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tailtap.cli.program import COMMANDS, GROUPS, find, program
from tailtap.cli.reference import manuals

NAMES = ["", *GROUPS, *COMMANDS]
PAGES = dict(manuals())
WIDE = 1_000
"""Columns in which no sentence is folded."""
NOT_SHOWN = {"Usage:"}


def page_of(name: str) -> str:
    return f"tailtap {name}".strip().replace(" ", "-") + ".1"


def help_of(name: str) -> str:
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        if not name:
            return program.get_help(root)
        command = find(name)
        assert command is not None
        with command.make_context(name, [], parent=root, resilient_parsing=True) as context:
            context.terminal_width = context.max_content_width = WIDE
            return command.get_help(context)


def test_each_command_and_group_has_a_page() -> None:
    assert list(PAGES) == [page_of(name) for name in NAMES]


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_sound_and_shows_every_word_of_the_help(name: str, tmp_path: Path) -> None:
    page = tmp_path / page_of(name)
    page.write_text(PAGES[page.name])
    subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], check=True)
    shown = subprocess.run(
        ["mandoc", "-T", "utf8", "-O", f"width={WIDE}", page],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # Bold letters are struck twice.
    plain = subprocess.run(["col", "-bx"], input=shown, check=True, capture_output=True, text=True)
    words = {word.lower() for word in plain.stdout.split()} | {
        f"{word.lower()}:"
        for word in plain.stdout.split()  # a heading has no colon
    }
    missing = [word for word in help_of(name).split() if word.lower() not in words]
    assert [word for word in missing if word not in NOT_SHOWN] == []
