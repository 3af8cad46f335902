"""The documentation says what the program does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from program import in_process

from tailtap.cli.kinds import page
from tailtap.cli.program import COMMANDS, GROUPS, find
from tailtap.cli.reference import reference
from tailtap.host.tuning.page import page as host_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING"))]


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
    assert (ROOT / "docs/reference/commands.md").read_text() == reference(), "run 'make docs'"


def test_the_page_of_kinds_is_fresh() -> None:
    assert (ROOT / "docs/reference/kinds.md").read_text() == page(), "run 'make docs'"


def test_the_page_of_the_host_is_fresh() -> None:
    assert (ROOT / "docs/reference/host.md").read_text() == host_page(), "run 'make docs'"


def test_every_command_is_listed() -> None:
    made = sum(
        path.read_text().count("\n@command(")
        for path in (ROOT / "python/tailtap/cli").rglob("*.py")
    )
    assert len(loaded()) == len(COMMANDS) == made


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


def runs_of_examples() -> Iterator[tuple[str, list[str]]]:
    """The runs of shipped experiments that pages show, as words; by page."""
    for path in PAGES:
        for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", path.read_text(), re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"^\$? ?(sudo )?\S*tailtap run examples/", line):
                    words = shlex.split(line, comments=True)
                    yield path.name, words[words.index("run") :]


def test_runs_shown_in_the_docs_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is there, and takes the values that the page sets."""
    monkeypatch.chdir(ROOT)
    shown = list(runs_of_examples())
    assert shown
    for name, words in shown:
        asked = [word for word in words if word not in ("--check", "--resume")]
        done = in_process(*asked, "--check", "--json")
        assert done.returncode in (0, 3), (name, words, done.stderr)


def anchors(page: Path) -> set[str]:
    """What links can name in a page: its headings and named places."""
    text = page.read_text()
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    slugs = {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}
    return slugs | set(re.findall(r'<a name="([^"]+)"', text))


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            if place:
                assert place in anchors(there), f"{page.name}: {target}#{place}"


def test_pages_that_the_program_names_exist() -> None:
    """Help texts, errors, docstrings and examples."""
    places = [
        *((ROOT / "python").rglob("*.py")),
        *((ROOT / "examples").rglob("*.yaml")),
        *((ROOT / "benches").rglob("*.py")),
        ROOT / "Makefile",
    ]
    for place in places:
        for named in re.findall(r"\bdocs/[\w/-]+\.(?:md|json|png)", place.read_text()):
            assert (ROOT / named).exists(), f"{place.name}: {named}"


def test_every_page_is_in_the_index() -> None:
    """docs/README.md links to each page, and both first pages stay short."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (docs / "README.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert pages <= linked
    for first in (ROOT / "README.md", docs / "README.md"):
        assert len(first.read_text().splitlines()) < 150


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_each_page_says_for_whom_it_is(page: Path) -> None:
    title, _, begins, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert begins.startswith("For ")
