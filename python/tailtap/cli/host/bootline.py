"""`tailtap host bootline`: print or install the kernel's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtap.cli.command import command
from tailtap.cli.host import also_option, purpose_options
from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from tailtap.host.tuning.bootline import Bootline

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
    role: str | None,
    cpus: str | None,
    housekeeping: str | None,
    interface: tuple[str, ...],
    also: tuple[str, ...],
    install_: bool,
    remove_: bool,
    dry_run: bool,
    loader: str | None,
    entry: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print the words for the kernel's command line, what each does and why; or install them.

    The last line is the words alone. A word that this kernel was not built for, or does not know,
    is left out, and so is what is only there to compare, unless it is named. Conflicts on the
    line that runs, and with these words, are listed on standard error.

    --install writes /etc/default/grub.d/99-tailtap.cfg for GRUB, for the normal entries only. For
    systemd-boot it copies the entry that was booted, as _-tailtap.conf. It shows the difference
    and says what to call next. It changes no file of anybody else's, so that it calls no
    update-grub, and it never reboots. A word with another value in such a file is an error.
    --remove and `tailtap host revert` undo it. After the reboot `tailtap host audit` says whether
    the kernel took the words.
    """

    from msgspec.structs import replace

    from tailtap.base.errors import InputError
    from tailtap.cli.host import machine
    from tailtap.host.facts.needs import require_root
    from tailtap.host.tuning import bootline as library
    from tailtap.records.printed import StepRecord, UninstalledRecord
    from tailtap.records.record import printed

    if install_ and remove_:
        raise InputError("--install and --remove exclude each other: choose one")
    if not install_:
        for option, given in (("--loader", loader), ("--entry", entry)):
            if given is not None:
                raise InputError(f"{option} is for --install: say that too, or leave it out")
    if dry_run and not (install_ or remove_):
        raise InputError("--dry-run is for --install and --remove: nothing is changed without them")
    if (install_ or remove_) and not dry_run:
        require_root()
    tree, purpose = machine(role, cpus, housekeeping, interface)
    if remove_:
        done = library.remove(tree, dry_run=dry_run)
        if json:
            removal = UninstalledRecord(
                dry_run=dry_run, removed=list(done.removed), left=list(done.left), then=done.then
            )
            print(printed(removal))
            return
        for path in done.removed:
            say(f"{'would remove' if dry_run else 'removed'} {path}")
        if not (done.removed or done.left):
            say("nothing to remove")
        for sentence in done.left:
            warn(f"tailtap: {sentence}")
        if done.then and not dry_run:
            say(done.then)
        return
    made = library.bootline(tree, purpose, names, also)
    if not install_:
        if json:
            print(printed(made.record))
            return
        if not quiet:
            _show(made)
        _warn(made)
        print(made.line)  # to be copied: one line on every terminal
        return
    step = library.install(tree, made, loader=loader, entry=entry, dry_run=dry_run)
    if json:
        done_step = StepRecord(file=step.path, difference=step.difference, then=step.then)
        print(printed(replace(made.record, dry_run=dry_run, install=done_step)))
        return
    _warn(made)
    if not step.difference:
        say(f"nothing to install in {step.path}: {step.then}")
        return
    if not quiet:
        print(step.difference, end="")
    say(f"{'would write' if dry_run else 'wrote'} {step.path}: {step.then}")


def _show(made: Bootline) -> None:
    """Each word with its reason, then the knobs that are left out with theirs."""
    from tailtap.cli.console import Column, Table
    from tailtap.cli.host import sentence

    say(sentence(made.purpose))
    table = Table(
        (
            Column("word"),
            Column("on the line", wrap=10),
            Column("what it does", wrap=18),
            Column("why", wrap=20, spare=1),
            Column("risk", right=True, spare=2),
            Column("source", wrap=24, spare=3),
        )
    )
    for word in made.words:
        knob = word.knob
        there = STATES[word.state].format(word.running)
        table.add(word.text, there, knob.does, knob.why, str(knob.risk), knob.source)
    table.print()
    for name, why in made.left:
        say(f"left {name}: {why}")


def _warn(made: Bootline) -> None:
    for clause in made.wrong:
        warn(f"tailtap: {clause}")
