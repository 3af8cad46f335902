"""Pages of the commands, made from the program's own help: a reference, and manual pages.

`python -m tailtap.cli.reference` prints docs/reference/commands.md, which a test compares; with a
folder it writes the manual pages there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import click

import tailtap
from tailtap.base.files import write_text
from tailtap.cli import COMPLETE
from tailtap.cli.command import Answer, command
from tailtap.cli.program import COMMANDS, GROUPS, find, program

HEAD = """# Commands

For whoever types or scripts them.

Made from the program's own help by `make docs`; a test fails when it is stale. `--help` and the
manual pages show examples as well.

Every command has `--json` (print one JSON object to standard output), `--quiet` (print the result
and nothing else) and `--help`.

Exit status of every command: 0 done; 1 the answer is no; 2 bad input or usage; 3 this machine
cannot do it, or runs failed; 4 interrupted, finished runs kept; 70 a bug of tailtap; 141 nobody
reads the output any more. An error is one line on standard error. That of a bug says where its
traceback is.

## What several commands take

A command names these where it has them.
"""
COMMON = ("--json", "--quiet", "-h, --help")
"""Those that the head says."""
SHORT = 40
"""Letters: what is no longer is said by each command."""
WIDTH = 96


def reference() -> str:
    """The reference of all commands as Markdown."""
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        rows: Counter[tuple[str, str]] = Counter()
        for name in COMMANDS:
            rows.update(_page(name, root, frozenset()).rows)
        shared = frozenset(
            row for row, commands in rows.items() if commands > 1 and len(row[1]) > SHORT
        )
        formatter = click.HelpFormatter(width=WIDTH)
        formatter.write_dl([row for row in rows if row in shared and row[0] not in COMMON])
        pages = [_page(name, root, shared) for name in COMMANDS]
    parts = [f"{HEAD}\n", _block(formatter)]
    for name, page in zip(COMMANDS, pages, strict=True):
        parts += [f"\n## tailtap {name}\n\n", _block(page)]
    return "".join(parts)


def _block(formatter: click.HelpFormatter) -> str:
    text = re.sub(r"\n\nOptions:(?=\n\n|$)", "", formatter.getvalue().strip())
    return f"```text\n{text}\n```\n"


def _page(name: str, root: click.Context, shared: frozenset[tuple[str, str]]) -> Page:
    command = find(name)
    assert command is not None
    page = Page(shared)
    with command.make_context(name, [], parent=root, resilient_parsing=True) as context:
        command.format_usage(context, page)
        command.format_help_text(context, page)
        command.format_arguments(context, page)
        command.format_options(context, page)
    return page


class Page(click.HelpFormatter):
    """Writes the help of a command without what stands at the top of the reference."""

    def __init__(self, shared: frozenset[tuple[str, str]]) -> None:
        """Of these terms with their meanings it writes the names alone."""
        super().__init__(width=WIDTH)
        self.shared = shared
        self.rows: list[tuple[str, str]] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write what is typed."""
        super().write_usage(prog, args, prefix="")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms, each with what it means, and the names of the shared ones."""
        own = [(term.removesuffix(" RANGE"), meaning) for term, meaning in rows]
        self.rows += own
        told = [row for row in own if row[0] not in COMMON]
        own = [row for row in told if row not in self.shared]
        if own:
            super().write_dl(own, col_max, col_spacing)
        if named := [term.split()[0].rstrip(",") for term, _ in told if (term, _) in self.shared]:
            self.write(f"{'':{self.current_indent}}{' '.join(named)}\n")


class Manual(click.HelpFormatter):
    """Writes in roff what click would write on a terminal."""

    def write(self, string: str) -> None:
        """Write lines as they are."""
        self._put(".PP", ".RS 4", ".nf", *map(_text, string.strip("\n").splitlines()), ".fi", ".RE")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the synopsis, behind which the description stands."""
        self._put(".SH SYNOPSIS", rf"\fB{_text(prog)}\fR {_text(args)}", ".SH DESCRIPTION")

    def write_heading(self, heading: str) -> None:
        """Begin a section."""
        self._put(f".SH {_text(heading.upper())}")

    def write_paragraph(self) -> None:
        """Every text begins a paragraph."""

    def write_text(self, text: str) -> None:
        """Write paragraphs; the lines of one that begins with a backspace stay as they are."""
        for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
            if paragraph.lstrip().startswith("\b"):
                self.write(paragraph.partition("\b")[2])
            else:
                self._put(".PP", _text(" ".join(paragraph.split())))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms, each with what it means."""
        for term, meaning in rows:
            self._put(".TP", rf"\fB{_text(term)}\fR", _text(" ".join(meaning.split())))

    def _put(self, *lines: str) -> None:
        self.buffer += [f"{line}\n" for line in lines]


def _text(text: str) -> str:
    """`text` as roff shows it, on a line that is no request."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def manuals() -> Iterator[tuple[str, str]]:
    """The name of each manual page, and its content."""
    summary = "measure, explain and predict the tail latency of packet processing"
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        yield _manual("tailtap", summary, program, root)
        rows = GROUPS | {name: row.summary for name, row in COMMANDS.items()}
        for name, summary in rows.items():
            command = find(name)
            assert command is not None
            with command.make_context(name, [], parent=root, resilient_parsing=True) as context:
                yield _manual(f"tailtap {name}", summary, command, context)


def _manual(
    name: str, summary: str, command: click.Command, context: click.Context
) -> tuple[str, str]:
    formatter = Manual()
    command.format_help(context, formatter)
    dashed = name.replace(" ", "-")
    head = (
        f'.TH {_text(dashed.upper())} 1 "" "tailtap {tailtap.__version__}" "Commands of tailtap"\n'
        ".nh\n.ad l\n"  # no word is divided: most are typed
        f".SH NAME\n{_text(dashed)} \\- {_text(summary)}\n"
    )
    return f"{dashed}.1", head + formatter.getvalue()


def main(folder: str | None = None) -> None:
    """Print the reference, or write all manual pages into a folder."""
    if folder is None:
        print(reference(), end="")
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in manuals():
        write_text(Path(folder, name), content)


if __name__ == "__main__":
    main(*sys.argv[1:2])


@command(
    examples=(
        (
            "tailtap completion bash > ~/.local/share/bash-completion/completions/tailtap",
            "bash 4.4 or later, with the package bash-completion",
        ),
        (
            "tailtap completion zsh > ~/.zfunc/_tailtap",
            "zsh; before `compinit`, ~/.zshrc must say fpath+=~/.zfunc",
        ),
        ("tailtap completion fish > ~/.config/fish/completions/tailtap.fish", "fish"),
        ('eval "$(tailtap completion bash)"', "this bash, until it ends"),
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
def completion(shell: Literal["bash", "zsh", "fish"], json: bool, quiet: bool) -> Answer:
    """Print a script that lets a shell complete what is typed after `tailtap`.

    Save it where the shell looks for such scripts, and start a new shell.
    """

    from click.shell_completion import get_completion_class

    from tailtap.records.printed import CompletionRecord

    made = get_completion_class(shell)
    assert made is not None
    text = made(program, {}, "tailtap", COMPLETE).source()
    record = CompletionRecord(shell=shell, script=text)
    return Answer(record, lambda: print(text, end=""))
