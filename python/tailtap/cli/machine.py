"""`tailtap doctor`, `clean` and `bmc`: what this machine can do, keeps of a crash, serves."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, TIME, Answer, command
from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from tailtap.base.errors import Check
    from tailtap.bmc.serving import BmcEvent


@command(
    examples=(
        ("tailtap doctor", "what this machine can measure"),
        ("tailtap doctor --clocks '10 s'", "how the clocks of its network cards run, too"),
    )
)
@click.option(
    "--clocks",
    type=TIME,
    help="Also read the clocks of all network cards for this time, '10 s': how well they are "
    "known, their rate, what latencies between two of them may be off by, and as root whether "
    "they jump when a card begins to stamp.",
)
def doctor(
    clocks: int | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Check what this machine can measure, and say what to install or change for the rest.

    As root, kernel features are tried in a small lab, with a container of each kind. States: ok;
    poor, which works but harms measurements; missing, which matters only to who needs it; untested.
    The exit status is 0 when `tailtap run` can work here, and 3 when it cannot.
    """
    from tailtap import doctor as library
    from tailtap.results.exporters import EXPORTERS

    checks = library.examine({"exporters": EXPORTERS}, clocks)
    able = library.can_run(checks)
    lacking = [one for one in checks if one.state == "missing" or not library.can_run([one])]
    shown = lacking if quiet else checks
    return Answer(library.record(checks), lambda: print_checks(shown, able=able), 0 if able else 3)


PIPED = 100
"""Columns of what is looked at, in a log: sentences of remedies are long."""


def print_checks(checks: Sequence[Check], *, able: bool) -> None:
    """Print what was looked at, area by area, and the answer."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.machine import checks_table

    print_table(checks_table(checks), piped=PIPED)
    say("tailtap run can work here" if able else "tailtap run cannot work here: see above")


@command()
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="Also remove what a running tailtap uses, which then fails.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Remove nothing; show what would be removed.",
)
def clean(
    all_: bool,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Undo what tailtap left changed on this machine, after a crash, a kill -9 or a reboot.

    Cards, drivers, huge pages and settings become what they were, by the journals of ended
    processes; what somebody else has changed since stays, and is reported. Virtual machines,
    containers, namespaces and links with names such as tt-0a1b2c-dut are removed, with their
    processes, control groups and mounts. What a running tailtap uses stays without --all, and so
    does what `tailtap host apply` has set.

    A journal that this version does not understand stays and is named. Journals are in
    /var/lib/tailtap/journals, or else in /run/tailtap.
    """

    from tailtap.host.changes import clean as library
    from tailtap.host.facts.needs import require_root
    from tailtap.records.printed import CleanRecord, LeftoverRow
    from tailtap.records.record import made

    require_root()
    found = library.find()
    stays = {"kept"} if all_ else {"alive", "kept"}
    kept = [item for item in found if item.owner in stays or item.stays]
    removed = [item for item in found if item not in kept]
    if not (json or quiet):
        verb = "would remove" if dry_run else "removing"
        for item in removed:
            used = f", in use by process {item.pid}" if item.owner == "alive" else ""
            say(f"{verb} {item.kind} {item.name}{used}", flush=True)
        for item in kept:
            if item.kind == "journal" and item.owner not in stays:
                continue  # said below
            if item.owner == "kept":
                why = "`tailtap host revert` undoes it"
            elif item.owner in stays:
                why = f"process {item.pid} uses it (--all removes it)"
            else:
                why = item.stays or ""
            say(f"kept {item.kind} {item.name}: {why}")
        if not found:
            say("nothing to remove")
    left = [] if dry_run else library.remove(removed)
    journals = [item for item in found if item.kind == "journal" and item.owner not in stays]
    left += [item.stays for item in journals if item.stays]
    for sentence in left:
        warn(f"tailtap: {sentence}")
    record = CleanRecord(
        dry_run=dry_run,
        removed=[made(item, LeftoverRow) for item in removed],
        kept=[made(item, LeftoverRow) for item in kept],
        left=left,
    )
    return Answer(record, lambda: None)


@command(
    examples=(
        ("tailtap bmc bmc.yaml", "serve what a file lists"),
        (
            "tailtap bmc --serve lxc:web@127.0.0.1:6230 --credentials users",
            "serve one container on a port",
        ),
    )
)
@click.argument(
    "file",
    type=PATH,
    required=False,
    help="The list of controllers, YAML.",
)
@click.option(
    "--serve",
    metavar="KIND:NAME@LISTEN",
    multiple=True,
    help="One more machine, such as lxc:web@6230 or libvirt:guest1@127.0.0.1:6231; may be "
    "repeated.",
)
@click.option(
    "--credentials",
    type=PATH,
    help="Who may use the controllers: lines of 'name: password', instead of FILE's.",
)
def bmc(
    file: Path | None,
    serve: tuple[str, ...],
    credentials: Path | None,
    json: bool,
    quiet: bool,
) -> None:
    """Give containers of LXC, domains of libvirt and other machines a management controller.

    Whatever speaks IPMI 2.0 then controls them (docs/howto/bmc.md).

    A port alone listens on 127.0.0.1. The file with the passwords must be its owner's alone (mode
    0600). Runs until SIGINT or SIGTERM; the machines stay as they are. With --json it prints an
    object for each event: listening, power, boot, refused, failed.
    """
    import signal
    import socket
    import threading

    from tailtap.bmc.serving import read
    from tailtap.bmc.serving import serve as library
    from tailtap.records.record import printed

    lock = threading.Lock()

    def tell(row: BmcEvent) -> None:
        with lock, contextlib.suppress(BrokenPipeError):  # nobody listens: serve on
            if json:
                print(printed(row), flush=True)
            elif not quiet or row.event in ("refused", "failed"):
                warn(f"tailtap: {sentence(row)}")

    configuration = read(file, serve, credentials)
    # A lock or an event of Python would miss a signal that comes while this thread begins to wait.
    end, wake = socket.socketpair()
    with end, wake:
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        library(configuration, tell, lambda: end.recv(1))
        signal.set_wakeup_fd(-1)


def sentence(row: BmcEvent) -> str:
    """What happened, for a person."""
    machine, whom = row.machine, f"by {row.user} from {row.address_of}"
    match row.event:
        case "listening":
            risk = (
                ": whoever reaches this address can ask for what helps to guess passwords; keep "
                "it on a network of its own, and passwords long"
            )
            return f"{machine} listens on {row.address}{risk if row.exposed else ''}"
        case "power":
            return f"{machine}: {row.action} {whom}"
        case "boot":
            return f"{machine}: boot device {row.device} {whom}"
        case "refused":
            more = "; further ones are not shown for a minute" if row.muted else ""
            return f"{machine}: {row.user!r} from {row.address_of} refused: {row.why}{more}"
        case _:
            return f"{machine}: {row.action} failed: {row.why}"
