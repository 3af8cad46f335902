"""The program without its commands: which there are, --version, and completion of their names."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import CompletionItem

from tailtap.base.suggest import did_you_mean
from tailtap.cli.registry import COMMANDS, GROUPS, listed


class Program(click.Group):
    """A group that knows its commands by `COMMANDS` and imports the module of the one that runs."""

    word = ""
    """The word on the command line that it is called by; empty for the program itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, as the help lists them."""
        return list(listed(self.word))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None if there is none."""
        if cmd_name in GROUPS and not self.word:
            return _group(cmd_name)
        row = COMMANDS.get(f"{self.word} {cmd_name}".strip())
        if row is None:
            return None
        module = importlib.import_module(f"tailtap.cli.{row.module}")
        found = getattr(module, row.module.rpartition(".")[2])
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; for an unknown one, what is nearest to it."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = did_you_mean(name, listed(self.word))
            ctx.fail(f"there is no command {name!r}: {near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            rows = listed(self.word).items()
            formatter.write_dl([(name, _sentence(summary)) for name, summary in rows])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, and options, that begin with `incomplete`."""
        names = [
            CompletionItem(name, help=summary)
            for name, summary in listed(self.word).items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def find(name: str) -> click.Command | None:
    """The command of a name in `COMMANDS`."""
    found: click.Command | None = program
    for word in name.split():
        assert isinstance(found, Program)
        found = found.get_command(click.Context(found), word)
    return found


def _group(name: str) -> Program:
    made = Program(name, help=_sentence(GROUPS[name]), no_args_is_help=True)
    made.word = name
    return made


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _show_versions(ctx: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if not given or ctx.resilient_parsing:
        return
    import platform

    import tailtap

    print(f"tailtap {tailtap.__version__}")
    print(f"python {platform.python_version()}")
    print(f"kernel {platform.release()}")
    ctx.exit()


program = Program(
    "tailtap",
    help="Measure, explain and predict the tail latency of packet processing.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_versions,
            help="Show the versions of tailtap, Python and the kernel, and exit.",
        )
    ],
)
