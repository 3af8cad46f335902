"""The links of ``tailtap tap``, each as `FORM` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tailtap.base.errors import InputError, WrongValue, naming

FORM = "[NAME=][NETNS/]INTERFACE[@arrival|@egress|@receipt][:FORWARD]"
DROP = "drop"
"""The FORWARD that absorbs packets."""
DEVICE = "dev:"
"""What stands before an interface to forward to; needed where that is called like `DROP`."""


class At(StrEnum):
    """Which packets of an interface are stamped, and when."""

    INGRESS = "ingress"
    """Those that arrive, when they were handed over to it; as they leave where they are forwarded
    to another interface."""
    ARRIVAL = "arrival"
    """Those that arrive, when they were handed over to it, also where they are forwarded."""
    EGRESS = "egress"
    """Those that leave, as they leave."""
    RECEIPT = "receipt"
    """Those that arrive, when they are received. Such a tap only listens."""


_STAMPED = {
    At.INGRESS: "As the interface is handed a packet: by a card's driver behind its interrupt, or "
    "by the sender at the other end of a veth pair. The card's queue and its interrupt lie before.",
    At.ARRIVAL: "As the interface is handed a packet, whatever becomes of it then. A card's queue "
    "and its interrupt lie before.",
    At.EGRESS: "As a packet leaves the kernel's receive or routing path, before the queueing "
    "discipline of the interface that it leaves through. That, the driver and the card lie behind.",
    At.RECEIPT: "As the interface's receive work comes to a packet. That it waited for this lies "
    "before.",
}


@dataclass(frozen=True)
class TapLink:
    """A link to tap, from the command line to `tailtap._core.tap`; ``str()`` writes it as typed."""

    name: str
    interface: str
    namespace: str | None = None
    """The network namespace of its interfaces: a name of ip-netns(8), or a path; None for ours."""
    at: At = At.INGRESS
    onward: str | None = None
    """The interface through which its packets leave."""
    absorb: bool = False
    """Whether its packets end here. Without both they go on their way."""
    records: int | None = None
    """Room for packets in the kernel; None for that of all links."""
    hash: str | None = None
    """What the hashes of its marks are of, as `tailtap evaluate --key` has it."""
    behind: bool | None = None
    """Whether its packets were through the device; None for those that leave."""

    def __str__(self) -> str:
        namespace = "" if self.namespace is None else f"{self.namespace}/"
        at = "" if self.at is At.INGRESS else f"@{self.at}"
        forward = f":{DROP}" if self.absorb else ""
        if self.onward is not None:
            forward = f":{DEVICE}{self.onward}"
        return f"{self.name}={namespace}{self.interface}{at}{forward}"

    def words(self) -> list[str]:
        """Its words on the command line of ``tailtap tap``."""
        room = [] if self.records is None else ["--records", f"{self.name}={self.records}"]
        hashed = [] if self.hash is None else ["--hash", f"{self.name}={self.hash}"]
        behind = ["--behind", self.name] if self.behind else []
        return [str(self), *room, *hashed, *behind]

    def stamped(self) -> str:
        """Where its packets are stamped, and what of their way lies outside: a sentence."""
        return _STAMPED[At.EGRESS if self.at is At.INGRESS and self.onward else self.at]

    def file(self, write: str) -> Path:
        return Path(write.replace("{link}", self.name))


def parse_link(text: str) -> TapLink:
    """A link as typed. Raises `InputError` for one that is malformed."""
    name, equals, rest = text.rpartition("=")
    # No interface has a slash in its name: what stands before the last one is the namespace.
    namespace, slash, rest = rest.rpartition("/")
    interface, colon, forward = rest.partition(":")
    at = At.INGRESS
    for place in (At.ARRIVAL, At.EGRESS, At.RECEIPT):
        if interface.endswith(f"@{place}"):
            interface, at = interface.removesuffix(f"@{place}"), place
    absorb = forward == DROP
    onward = None if absorb or not colon else forward.removeprefix(DEVICE)
    if not interface or (equals and not name) or (slash and not namespace) or onward == "":
        raise InputError(f"{text!r} is not a link: write {FORM}")
    name = name or interface
    if name.startswith("/") or ".." in name.split("/"):
        raise InputError(
            f"link name {name!r} is a place for its file in the folder of --write: a / "
            "in it leads into a folder there, and nothing leads out"
        )
    if onward == interface:
        raise InputError(f"{text!r} sends packets back where they came from: that is a loop")
    if colon and at is At.RECEIPT:
        raise InputError(
            f"a tap @{at} listens beside another one, and takes no packet from it: "
            f"leave :{forward} out, or @{at}"
        ).at(repr(text))
    return TapLink(name, interface, namespace or None, at, onward, absorb)


def parse_links(links: Sequence[str], write: str) -> list[TapLink]:
    """The links of a command, whose files are `write` with their names.

    Raises `InputError` for a malformed link, for a name or a file that occurs twice.
    """
    if len(links) > 1 and "{link}" not in write:
        raise InputError(
            f"--write {write!r} is one file for {len(links)} links: put {{link}} into its name"
        )
    parsed: dict[str, TapLink] = {}
    for link in map(parse_link, links):
        if link.name in parsed:
            raise InputError(f"two links are called {link.name!r}: name them, as in NAME=INTERFACE")
        parsed[link.name] = link
    return list(parsed.values())


def with_rooms(
    links: Sequence[TapLink], records: Sequence[str]
) -> tuple[int | None, list[TapLink]]:
    """What ``--records`` says: the room of all links, or None, and links with room of their own.

    Raises `InputError` for what is no number, for a name that no link has, or said twice.
    """
    every: int | None = None
    named = {link.name: link for link in links}
    for text in records:
        name, equals, number = text.rpartition("=")
        if not (number.isascii() and number.isdecimal()):
            raise InputError(f"--records {text!r} is no number of packets: write 4096 or NAME=4096")
        if equals and name not in named:
            raise WrongValue("--records", text, f"the links are {', '.join(named)}")
        said = named[name].records if equals else every
        if said is not None:
            raise WrongValue("--records", text, "this is said twice: give it once")
        if equals:
            named[name] = replace(named[name], records=int(number))
        else:
            every = int(number)
    return every, list(named.values())


def with_hashes(links: Sequence[TapLink], hashes: Sequence[str]) -> list[TapLink]:
    """The links with what ``--hash`` says: ``KEY`` for all of them, ``NAME=KEY`` for one.

    Raises `InputError` for a key that nobody knows, for a name that no link has, or said twice.
    """
    from tailtap import _core

    every: str | None = None
    named: dict[str, str] = {}
    names = [link.name for link in links]
    for text in hashes:
        name, equals, key = text.rpartition("=")
        if equals and name not in names:
            raise WrongValue("--hash", text, f"the links are {', '.join(names)}")
        if (equals and name in named) or (not equals and every is not None):
            raise WrongValue("--hash", text, "this is said twice: give it once")
        with naming("--hash"):
            _core.check_key(key)
        if equals:
            named[name] = key
        else:
            every = key
    return [replace(link, hash=named.get(link.name, every)) for link in links]


def with_sides(links: Sequence[TapLink], behind: Sequence[str]) -> list[TapLink]:
    """The links, where ``--behind`` says of which the packets were through the device: of no other
    one, then.

    Raises `InputError` for a name that no link has.
    """
    names = [link.name for link in links]
    for name in behind:
        if name not in names:
            raise WrongValue("--behind", name, f"the links are {', '.join(names)}")
    return [replace(link, behind=link.name in behind if behind else None) for link in links]
