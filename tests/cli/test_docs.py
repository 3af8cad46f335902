"""The documentation says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tailtap.cli.kinds import page
from tailtap.cli.program import find
from tailtap.cli.reference import reference
from tailtap.cli.registry import COMMANDS, GROUPS
from tailtap.machine.tuning.page import page as host_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def loaded() -> dict[str, click.Command]:
    """All commands, imported."""
    found = {name: find(name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def commands() -> dict[str, set[str]]:
    """The options of each command."""
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in loaded().items()
    }


def test_the_command_reference_is_fresh() -> None:
    assert (ROOT / "docs/commands.md").read_text() == reference(), "run 'make docs'"


def test_the_page_of_kinds_is_fresh() -> None:
    assert (ROOT / "docs/kinds.md").read_text() == page(), "run 'make docs'"


def test_the_page_of_the_host_is_fresh() -> None:
    assert (ROOT / "docs/host.md").read_text() == host_page(), "run 'make docs'"


def test_the_list_of_commands_says_what_their_modules_say() -> None:
    assert list(loaded()) == list(COMMANDS)
    folder = ROOT / "python/tailtap/cli"
    for name, row in COMMANDS.items():
        first = (folder / f"{row.module.replace('.', '/')}.py").read_text().splitlines()[0]
        assert first == f'"""`tailtap {name}`: {row.summary}."""'


def test_every_module_with_a_command_is_listed() -> None:
    folder = ROOT / "python/tailtap/cli"
    modules = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\n@command(" in path.read_text()
    }
    assert modules == {row.module for row in COMMANDS.values()}


def test_every_command_takes_the_common_options() -> None:
    for name, options in commands().items():
        assert options >= {"--json", "--quiet"}, name


def test_every_command_and_parameter_has_help() -> None:
    for name, command in loaded().items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_in_the_docs_exist(page: Path) -> None:
    """Every `tailtap …` line of a code block names a command and options that exist."""
    known, groups = commands(), "|".join(GROUPS)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
    shown = [block for language, block in blocks if language in ("", "sh", "console")]
    lines = [line for block in shown for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        match = re.match(rf"^\$? ?(?:sudo )?(?:\S*/)?tailtap ((?:(?:{groups}) )?[a-z]+)(.*)", line)
        if match:
            assert match[1] in known, line
            options = set(re.findall(r"(?<!\S)--[a-z-]+", match[2]))
            assert options <= known[match[1]] | {"--help"}, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
