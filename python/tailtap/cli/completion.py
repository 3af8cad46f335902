"""`tailtap completion`: print the completion script of a shell."""

from __future__ import annotations

from typing import Literal

import click

from tailtap.cli.command import command


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
def completion(shell: Literal["bash", "zsh", "fish"], json: bool, quiet: bool) -> None:
    """Print a script that lets a shell complete what is typed after `tailtap`.

    It completes commands, options, the names of run folders and experiment folders, experiment
    files, captures, and what options take, such as the names of forwarders and profiles. Save the
    script where the shell looks for such scripts, and start a new shell.
    """

    from tailtap.cli.shells import script
    from tailtap.records.printed import CompletionRecord
    from tailtap.records.record import printed

    text = script(shell)
    if json:
        print(printed(CompletionRecord(shell=shell, script=text)))
    else:
        print(text, end="")
