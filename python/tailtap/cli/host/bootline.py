"""`tailtap host bootline`: print or install the kernel's command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import command
from tailtap.cli.completing import one_of
from tailtap.cli.host import also_option, purpose_options

if TYPE_CHECKING:
    from tailtap.machine.tuning.bootline import Bootline

TABLE_WIDTH = 120
LOADERS = ("grub", "systemd-boot")
"""Those of `tailtap.machine.loaders`, spelled here as they take long to import."""
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
    shell_complete=one_of(*LOADERS),
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
    interfaces: tuple[str, ...],
    also: tuple[str, ...],
    install_: bool,
    remove_: bool,
    dry_run: bool,
    loader: str | None,
    entry: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print the words for the kernel's command line, with a reason for each; or install them.

    The last line is the words alone. A word that this kernel was not built for, or does not know,
    is left out, and so is what is only there to compare, unless it is named. What contradicts on
    the line that runs, or would with these words, is told on standard error.

    --install writes /etc/default/grub.d/99-tailtap.cfg for GRUB, for the normal entries only. For
    systemd-boot it copies the entry that was booted, as _-tailtap.conf. It shows the difference
    and says what to call next. It changes no file of anybody else's, so that it calls no
    update-grub, and it never reboots. A word with another value in such a file is an error.
    --remove and `tailtap host revert` undo it. After the reboot `tailtap host audit` says whether
    the kernel took the words.
    """
    import json as json_module

    from tailtap.cli.host import machine
    from tailtap.errors import InputError
    from tailtap.machine.privileges import require_root
    from tailtap.machine.tuning import bootline as library

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
    tree, purpose = machine(role, cpus, housekeeping, interfaces)
    if remove_:
        done = library.remove(tree, dry_run=dry_run)
        if json:
            content = {"schema": library.SCHEMA, "dry_run": dry_run, **done.as_json()}
            print(json_module.dumps(content))
            return
        for path in done.removed:
            print(f"{'would remove' if dry_run else 'removed'} {path}")
        if not (done.removed or done.left):
            print("nothing to remove")
        for sentence in done.left:
            print(f"tailtap: {sentence}", file=sys.stderr)
        if done.then and not dry_run:
            print(done.then)
        return
    made = library.bootline(tree, purpose, names, also)
    if not install_:
        if json:
            print(json_module.dumps(made.as_json()))
            return
        if not quiet:
            _show(made)
        _warn(made)
        print(made.line)
        return
    step = library.install(tree, made, loader=loader, entry=entry, dry_run=dry_run)
    if json:
        print(json_module.dumps({**made.as_json(), "dry_run": dry_run, "install": step.as_json()}))
        return
    _warn(made)
    if not step.difference:
        print(f"nothing to install in {step.path}: {step.then}")
        return
    if not quiet:
        print(step.difference, end="")
    print(f"{'would write' if dry_run else 'wrote'} {step.path}: {step.then}")


def _show(made: Bootline) -> None:
    """Each word with its reason, then the knobs that are left out with theirs."""
    from rich.table import Table
    from rich.text import Text

    from tailtap.cli.console import print_table
    from tailtap.cli.host import sentence

    print(sentence(made.purpose))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("word", "on the line", "why"):
        table.add_column(name, overflow="fold")
    for word in made.words:
        why = f"{word.knob.why} ({word.knob.source}; risk {word.knob.risk})"
        there = STATES[word.state].format(word.running)
        table.add_row(*map(Text, (word.text, there, why)))
    print_table(table, widest=TABLE_WIDTH)
    for name, why in made.left:
        print(f"left {name}: {why}")


def _warn(made: Bootline) -> None:
    for clause in made.wrong:
        print(f"tailtap: {clause}", file=sys.stderr)
