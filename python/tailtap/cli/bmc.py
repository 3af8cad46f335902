"""`tailtap bmc`: serve IPMI for containers and guests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.terminal import warn

if TYPE_CHECKING:
    from tailtap.bmc.serving import BmcEvent


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
    help="One more machine, such as lxc:web@6230 or libvirt:guest1@127.0.0.1:6231. May be given "
    "several times.",
)
@click.option(
    "--credentials",
    type=PATH,
    help="Who may use the controllers: lines of 'name: password'. Instead of the file that FILE "
    "names.",
)
def bmc(
    file: Path | None,
    serve: tuple[str, ...],
    credentials: Path | None,
    json: bool,
    quiet: bool,
) -> None:
    """Give containers of LXC, domains of libvirt and other machines a management controller.

    Whatever speaks IPMI 2.0 then controls them as it does servers: ipmitool, pyghmi, other
    testbeds. Power status, on, off, cycle, reset and graceful shutdown, boot device, chassis
    status, device id, GUID and name. docs/howto/bmc.md shows the file.

    A port alone listens on 127.0.0.1. Any other address is told, because whoever reaches it can
    ask for what helps to guess passwords. Sessions use cipher suite 17 only. The file with the
    passwords must be its owner's alone (mode 0600).

    Runs until SIGINT or SIGTERM. The machines stay as they are then. Says what happens on standard
    error; with --json on standard output, an object for each event: listening, power, boot,
    refused, failed.
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
            more = "; further ones are not told for a minute" if row.muted else ""
            return f"{machine}: {row.user!r} from {row.address_of} refused: {row.why}{more}"
        case _:
            return f"{machine}: {row.action} failed: {row.why}"
