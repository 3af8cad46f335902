"""Pages of the commands, made from the program's own help: a reference, and manual pages.

`python -m tailtap.cli.reference` prints docs/reference/commands.md, which a test compares; with a
folder it writes the manual pages there.
"""

from __future__ import annotations

import re
import sys
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

Made from the program's own help by `make docs`; a test fails when it is stale.

Every command has `--json` (print one JSON object to standard output), `--quiet` (print the result
and nothing else) and `--help`.

Exit status of every command: 0 done; 1 the answer is no; 2 bad input or usage; 3 this machine
cannot do it, or runs failed; 4 interrupted, finished runs kept; 70 a bug of tailtap; 141 nobody
reads the output any more. An error is one line on standard error. That of a bug says where its
traceback is.
"""
COMMON = re.compile(
    r"\n  (--json +Print one JSON object|--quiet +Print the result|-h, --help +Show this message).*"
)
"""What is said once, in the head."""
WIDTH = 96


def reference() -> str:
    """The reference of all commands as Markdown."""
    parts = [HEAD]
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        for name in COMMANDS:
            command = find(name)
            assert command is not None
            with command.make_context(
                name,
                [],
                parent=root,
                resilient_parsing=True,
                max_content_width=WIDTH,
                terminal_width=WIDTH,
            ) as context:
                text = COMMON.sub("", command.get_help(context).rstrip())
            text = re.sub(r"\n\nOptions:(?=\n\n|$)", "", text)
            parts.append(f"## tailtap {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


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

    It completes commands, options, files and folders, and what options take, such as the names of
    profiles and knobs. Save the script where the shell looks for such scripts, and start a new
    shell.
    """

    from click.shell_completion import get_completion_class

    from tailtap.cli.program import program
    from tailtap.records.printed import CompletionRecord

    made = get_completion_class(shell)
    assert made is not None
    text = made(program, {}, "tailtap", COMPLETE).source()
    record = CompletionRecord(shell=shell, script=text)
    return Answer(record, lambda: print(text, end=""))
