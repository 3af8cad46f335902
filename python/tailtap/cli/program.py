"""The program without its commands: which there are, --version, and completion of their names.

A module is imported when its command runs, so that no command waits for what another one needs."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from tailtap.base.errors import did_you_mean
from tailtap.cli.terminal import page


class Row(NamedTuple):
    """A command."""

    module: str
    """Where it is, and behind a colon what it is called there, unless as its module."""
    summary: str


COMMANDS = {
    "run": Row("run", "make the measurements of an experiment file"),
    "observe": Row("observe", "measure a device that is in service, as it is"),
    "search": Row("search", "find the highest rate at which no more is lost than allowed"),
    "improve": Row("improve", "try what may lower the tail, and show what does"),
    "evaluate": Row("evaluate", "match two captures and show the tail of the latency"),
    "report": Row("publishing:report", "write a page and figures about an experiment folder"),
    "explain": Row("analyses:explain", "say why packets of a run were late"),
    "model": Row("analyses:model", "predict the tail of a run on a longer horizon"),
    "interrupts": Row("analyses:interrupts", "say which interrupts rise where packets are late"),
    "verdict": Row("verdict", "say whether runs meet their requirements"),
    "compare": Row("comparison:compare", "rank configurations by their tail"),
    "history add": Row("comparison:add", "put the runs of a commit into a history"),
    "history show": Row("comparison:show", "say at which commits the tail changed"),
    "reproduce": Row("publishing:reproduce", "repeat what was published, and compare"),
    "export": Row("exchange:export", "write results in the formats of other programs"),
    "publish": Row("publishing:publish", "make a site that others can read, check and run again"),
    "import": Row("exchange:import_", "read published result files"),
    "bmc": Row("machine:bmc", "serve IPMI for containers and guests"),
    "doctor": Row("machine:doctor", "check what this machine can measure"),
    "calibrate": Row("calibrate", "try a testbed's cables, taps, clocks and generators"),
    "host audit": Row("host.tuning:audit", "judge what on this machine adds tail latency"),
    "host apply": Row("host.tuning:apply", "set what can be set while the machine runs"),
    "host revert": Row("host.tuning:revert", "put back what `tailtap host apply` has set"),
    "host bootline": Row("host.files:bootline", "print or install the kernel's command line"),
    "host noise": Row(
        "host.tuning:noise", "measure what takes cores that nobody asks for anything"
    ),
    "host export": Row(
        "host.files:export", "write the table of knobs for programs that tune hosts"
    ),
    "testbed check": Row("testbed:check", "find out whether cables are as a testbed file says"),
    "testbed power": Row("testbed:power", "switch a host of a testbed on and off"),
    "testbed boot": Row(
        "testbed:boot", "boot a host of a testbed with a kernel and its parameters"
    ),
    "testbed console": Row("testbed:console", "show the serial console of a host of a testbed"),
    "testbed image": Row("testbed:image", "make a live image that hosts of a testbed boot"),
    "clean": Row("machine:clean", "undo what a crashed tailtap left changed on the machine"),
    "generate": Row("generate", "send traffic with unique ids"),
    "tap": Row("tap", "stamp or capture every packet that passes a link"),
    "trace": Row("datapath:trace", "record what the kernel does on chosen CPUs"),
    "forward": Row("datapath:forward", "forward packets and inject known faults"),
    "load": Row("datapath:load", "load a CPU as a neighbour does"),
    "completion": Row("reference:completion", "print the completion script of a shell"),
}
GROUPS = {
    "history": "watch the tail from commit to commit",
    "host": "tune this machine for low latency, and put it back",
    "testbed": "ask the machines of a testbed, and boot them",
}


def listed(group: str = "") -> dict[str, str]:
    """Each word that may follow `tailtap` and the `group`, with its summary."""
    prefix = f"{group} " if group else ""
    found: dict[str, str] = {}
    for name, row in COMMANDS.items():
        if name.startswith(prefix):
            word, _, more = name.removeprefix(prefix).partition(" ")
            found[word] = GROUPS[word] if more else row.summary
    return found


class Paged(click.Command):
    """A command whose help is read page by page, where it is longer than the terminal."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option --help."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


class Program(Paged, click.Group):
    """A group that knows its commands by `COMMANDS` and imports the module of the one that runs."""

    word = ""
    """The word on the command line that it is called by; empty for the program itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line: ``help COMMAND`` is ``COMMAND --help``."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

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
        place, _, name = row.module.partition(":")
        module = importlib.import_module(f"tailtap.cli.{place}")
        found = getattr(module, name or place.rpartition(".")[2])
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


def _show_help(ctx: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        page(ctx.get_help())
        ctx.exit()


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
