"""`tailtap completion`: print the completion script of a shell."""

from __future__ import annotations

from typing import Literal

import click

from tailtap.cli import COMPLETE
from tailtap.cli.command import Answer, command


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
