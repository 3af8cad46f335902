"""The documentation says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tailtap.cli import app
from tailtap.cli.reference import reference

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands() -> dict[str, set[str]]:
    """The options of each command."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in group.commands.items()
    }


def test_the_command_reference_is_fresh() -> None:
    assert (ROOT / "docs/commands.md").read_text() == reference(), "run 'make docs'"


def test_every_command_takes_the_common_options() -> None:
    for name, options in commands().items():
        assert options >= {"--json", "--quiet"}, name


def test_every_command_and_parameter_has_help() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_in_the_docs_exist(page: Path) -> None:
    """Every `tailtap …` line of a code block names a command and options that exist."""
    known = commands()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
    shown = [block for language, block in blocks if language in ("", "sh", "console")]
    lines = [line for block in shown for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        match = re.match(r"^\$? ?(?:sudo )?(?:\S*/)?tailtap ([a-z]+)(.*)", line)
        if match:
            assert match[1] in known, line
            options = set(re.findall(r"(?<!\S)--[a-z-]+", match[2]))
            assert options <= known[match[1]] | {"--help"}, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
