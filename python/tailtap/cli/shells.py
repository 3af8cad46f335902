"""Talking with shells about completions: click's scripts and answers, but for bash's `=`."""

from __future__ import annotations

from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
)

from tailtap.cli.program import program

COMPLETE = "_TAILTAP_COMPLETE"
"""What a shell sets when it asks for completions."""


class Bash(BashComplete):
    """Bash takes `a=b` for three words, and puts the answer in the place of the last one."""

    before = ""
    """What stands before the last word, up to an equals sign: the answer goes without it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one to complete, and what there is of it."""
        words: list[str] = []
        arguments, incomplete = super().get_completion_args()
        for word in (*arguments, incomplete):
            if words and (word == "=" or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        incomplete = words.pop()
        if not incomplete.startswith("-"):
            name, equals, _ = incomplete.rpartition("=")
            self.before = name + equals
        return words, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """A line of the answer."""
        return f"{item.type},{str(item.value).removeprefix(self.before)}"


def script(shell: str) -> str:
    """What a shell must load once; `shell` is bash, zsh or fish."""
    made = get_completion_class(shell)
    assert made is not None
    return made(program, {}, "tailtap", COMPLETE).source()


def answer(instruction: str) -> int:
    """Print what a shell asks for by `COMPLETE`; the exit status."""
    return shell_complete(program, {}, "tailtap", COMPLETE, instruction)


add_completion_class(Bash)
