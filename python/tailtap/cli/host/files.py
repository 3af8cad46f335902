"""`tailtap host bootline` and `export`: what other programs set, as they read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.errors import InputError
from tailtap.cli.command import PATH, Answer, command, refuse
from tailtap.cli.host import also_option, purpose_options, sentence
from tailtap.cli.terminal import say, unless, warn

if TYPE_CHECKING:
    from tailtap.host.knobs.tree import Purpose, Tree
    from tailtap.records.printed import BootlineRecord, StepRecord, UninstalledRecord

FORMATS = ("tuned", "sysctl", "ansible")
"""Those of `tailtap.host.tuning.exports`, spelled here as they take long to import."""
LOADERS = ("grub", "systemd-boot")
"""Those of `tailtap.host.loaders`, spelled here as they take long to import."""
STATES = {
    "there": "there",
    "missing": "",
    "other": "as {}",
}
"""What is said of a word, as the line that runs has it."""


@command(
    examples=(
        ("tailtap host bootline --cpus 2-5", "print the words for a device on four cores"),
        ("tailtap host bootline --with nohz-full", "with a word that helps some devices only"),
        ("sudo tailtap host bootline --install", "let the next boot take them"),
    )
)
@purpose_options
@also_option
@click.option(
    "--install",
    "install_",
    is_flag=True,
    help="Write the words to a file of tailtap's own that the boot loader reads.",
)
@click.option(
    "--remove",
    "remove_",
    is_flag=True,
    help="Remove the file that --install wrote.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only say what --install or --remove would change.",
)
@click.option(
    "--loader",
    metavar="NAME",
    type=click.Choice(LOADERS),
    help=f"The boot loader: {' or '.join(LOADERS)}; by default the one that is there.",
)
@click.option(
    "--entry",
    metavar="FILE",
    help="The entry of systemd-boot to copy; by default the one that was booted.",
)
def bootline(
    names: tuple[str, ...],
    tree: Tree,
    purpose: Purpose,
    also: tuple[str, ...],
    install_: bool,
    remove_: bool,
    dry_run: bool,
    loader: str | None,
    entry: str | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Print the words for the kernel's command line, what each does and why; or install them.

    The last line is the words alone, less those that this kernel does not know, and those only
    there to compare, unless named. Conflicts are on standard error.

    --install writes a file of tailtap's own for GRUB or systemd-boot (docs/howto/host.md), shows
    the difference and what to call next, and never reboots. --remove and `tailtap host revert` undo
    it.
    """

    from msgspec.structs import replace

    from tailtap.host.facts.needs import require_root
    from tailtap.host.tuning import bootline as library

    refuse(
        (install_ and remove_, "--install and --remove exclude each other: choose one"),
        *(
            (
                given is not None and not install_,
                f"{option} is for --install: say that too, or leave it out",
            )
            for option, given in (("--loader", loader), ("--entry", entry))
        ),
        (
            dry_run and not (install_ or remove_),
            "--dry-run is for --install and --remove: nothing is changed without them",
        ),
    )
    if (install_ or remove_) and not dry_run:
        require_root()
    if remove_:
        removal = library.remove(tree, dry_run=dry_run)
        return Answer(removal, lambda: _print_removal(removal))
    made = library.bootline(tree, purpose, names, also)
    if not install_:
        return Answer(made, lambda: _print_line(made, purpose, quiet=quiet))
    step = library.install(tree, made, loader=loader, entry=entry, dry_run=dry_run)
    made = replace(made, dry_run=dry_run, install=step)
    return Answer(made, lambda: _print_step(made, step, dry_run=dry_run, quiet=quiet))


def _print_removal(done: UninstalledRecord) -> None:
    for path in done.removed:
        say(f"{'would remove' if done.dry_run else 'removed'} {path}")
    if not (done.removed or done.left):
        say("nothing to remove")
    for left in done.left:
        warn(f"tailtap: {left}")
    if done.then and not done.dry_run:
        say(done.then)


def _print_line(made: BootlineRecord, purpose: Purpose, *, quiet: bool) -> None:
    if not quiet:
        _print_words(made, purpose)
    _warn(made)
    print(made.line)  # to be copied: one line on every terminal


def _print_step(made: BootlineRecord, step: StepRecord, *, dry_run: bool, quiet: bool) -> None:
    _warn(made)
    if not step.difference:
        say(f"nothing to install in {step.file}: {step.then}")
        return
    if not quiet:
        print(step.difference, end="")
    say(f"{'would write' if dry_run else 'wrote'} {step.file}: {step.then}")


def _print_words(made: BootlineRecord, purpose: Purpose) -> None:
    """Each word with its reason, then the knobs that are left out with theirs."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections import Column, row, table

    say(sentence(purpose))
    columns = (
        Column("word"),
        Column("on the line", wrap=10),
        Column("what it does", wrap=18),
        Column("why", wrap=20, spare=1),
        Column("risk", right=True, spare=2),
        Column("source", wrap=24, spare=3),
    )
    rows = (
        row(word.word, STATES[word.state].format(word.running), word.does, word.why,
            str(word.risk), word.source)
        for word in made.words
    )  # fmt: skip
    print_table(table("", columns, rows))
    for left in made.left:
        say(f"left {left.name}: {left.why}")


def _warn(made: BootlineRecord) -> None:
    for clause in made.wrong:
        warn(f"tailtap: {clause}")


@command(
    computes=True,
    examples=(
        ("tailtap host export --format tuned --cpus 2-5", "print a profile of tuned"),
        (
            "tailtap host export --format ansible --out tasks.yaml memory timers",
            "write a task list for two groups",
        ),
    ),
)
@purpose_options
@click.option(
    "--format",
    "format_",
    required=True,
    metavar="FORMAT",
    type=click.Choice(FORMATS),
    help="tuned: a profile's tuned.conf. sysctl: a file for sysctl.d. ansible: a task list.",
)
@also_option
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Where it goes; standard output when not given. Only an earlier export is replaced.",
)
def export(
    names: tuple[str, ...],
    tree: Tree,
    purpose: Purpose,
    format_: str,
    also: tuple[str, ...],
    out: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Write what tunes a host like this one as a tuned profile, a sysctl file or Ansible tasks.

    The values are those of `tailtap host apply` and `bootline`, with reasons as comments; comments
    at the end name what is not in the file.
    """

    from tailtap.base.files import named
    from tailtap.base.foreign import read_head
    from tailtap.base.writing import writing
    from tailtap.host.tuning.exports import FORMATS as KNOWN
    from tailtap.host.tuning.exports import HEAD, content
    from tailtap.records.printed import HostExportRecord, Left

    found = content(tree, purpose, names, also)
    made = KNOWN[format_](found)
    if out is not None:
        with writing(out, "name another file by --out"):
            if out.is_file() and HEAD.encode() not in read_head(out):
                raise InputError(f"--out: {out} is there, and is no export: name another file")
            with named(out) as file:
                file.write(made.text.encode())
    record = HostExportRecord(
        format=format_,
        out=None if out is None else str(out),
        text=made.text,
        left=[Left(name=name, why=why) for name, why in made.left],
    )
    if out is None:
        return Answer(record, lambda: print(made.text, end=""))
    done = {one.knob.name for one in found.settings} | {row.knob for row in found.words}
    done -= dict(made.left).keys()
    told = f"wrote {len(done)} knobs to {out}, {len(made.left)} left"
    return Answer(record, lambda: unless(quiet)(told))
