"""The links of ``tailtap tap``: ``[NAME=][NETNS/]INTERFACE[@egress|@receipt][:FORWARD]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tailtap.records.errors import InputError

FORM = "[NAME=][NETNS/]INTERFACE[@egress|@receipt][:FORWARD]"
INGRESS, EGRESS, RECEIPT = "ingress", "egress", "receipt"
"""Which packets of an interface are stamped, and when: those that arrive, when they were handed
over to it; those that leave, as they leave; those that arrive, when they are received."""


class TapLink(NamedTuple):
    """A link as `tailtap._core.tap` takes it."""

    name: str
    namespace: str | None
    """The network namespace of its interfaces: a name of ip-netns(8), or a path; None for ours."""
    interface: str
    at: str
    """`INGRESS`, `EGRESS` or `RECEIPT`."""
    forward: str | None
    """Through which interface they leave, or ``drop``; None where they go on their way."""
    path: Path


def parse_links(links: Sequence[str], write: str) -> list[TapLink]:
    """The links of a command, whose files are `write` with their names.

    Raises `InputError` for a malformed link, for a name or a file that occurs twice.
    """
    if len(links) > 1 and "{link}" not in write:
        raise InputError(
            f"--write {write!r} is one file for {len(links)} links: put {{link}} into its name"
        )
    parsed: dict[str, TapLink] = {}
    for link in links:
        name, equals, rest = link.rpartition("=")
        # No interface has a slash in its name: what stands before the last one is the namespace.
        namespace, slash, rest = rest.rpartition("/")
        hook, colon, forward = rest.partition(":")
        interface, at = hook, INGRESS
        for place in (EGRESS, RECEIPT):
            if hook.endswith(f"@{place}"):
                interface, at = hook.removesuffix(f"@{place}"), place
        if (
            not interface
            or (equals and not name)
            or (slash and not namespace)
            or (colon and not forward)
        ):
            raise InputError(f"{link!r} is not a link: write {FORM}")
        name = name or interface
        if name.startswith("/") or ".." in name.split("/"):
            raise InputError(
                f"link name {name!r} is a place for its file in the folder of --write: a / in it "
                "leads into a folder there, and nothing leads out"
            )
        if name in parsed:
            raise InputError(f"two links are called {name!r}: name them, as in NAME=INTERFACE")
        if forward == interface:
            raise InputError(f"{link!r} sends packets back where they came from: that is a loop")
        parsed[name] = TapLink(
            name,
            namespace or None,
            interface,
            at,
            forward or None,
            Path(write.replace("{link}", name)),
        )
    return list(parsed.values())


def parse_rooms(records: Sequence[str], names: Sequence[str]) -> tuple[int | None, dict[str, int]]:
    """What ``--records`` says: for all links, or None, and by the names of single links.

    Raises `InputError` for what is no number, for a name that no link has, or said twice.
    """
    every: int | None = None
    rooms: dict[str, int] = {}
    for text in records:
        name, equals, number = text.rpartition("=")
        if not (number.isascii() and number.isdecimal()):
            raise InputError(f"--records {text!r} is no number of packets: write 4096 or NAME=4096")
        if equals and name not in names:
            raise InputError(f"--records {text!r}: the links are {', '.join(names)}")
        if name in rooms or (not equals and every is not None):
            raise InputError(f"--records {text!r}: this is said twice: give it once")
        if equals:
            rooms[name] = int(number)
        else:
            every = int(number)
    return every, rooms
