"""What is observed: an interface, and where it is. A kind of place is a file here and a row in
`PLACES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

from tailtap.base.errors import InputError
from tailtap.measure.observe.targets.containers import Containers
from tailtap.measure.observe.targets.kind import Place, PlaceKind
from tailtap.measure.observe.targets.namespaces import Namespaces
from tailtap.measure.observe.targets.pods import Pods
from tailtap.measure.observe.targets.processes import Processes
from tailtap.records.live import Moment

__all__ = ["PLACES", "Place", "PlaceKind", "Target", "find", "parse_target"]

PLACES: Mapping[str, PlaceKind] = {
    "": Namespaces(),
    "container": Containers(),
    "pid": Processes(),
    "pod": Pods(),
}
"""Every kind of place by the word before the colon."""


@dataclass(frozen=True)
class Target:
    """An interface as it was asked for."""

    text: str
    interface: str
    kind: str = ""
    """One of `PLACES`."""
    place: str = ""
    at: Moment | None = None
    """Which of its packets are stamped; None: a look at them tells."""


def parse_target(text: str) -> Target:
    """The target that is written ``[PLACE/]INTERFACE[@arrival|@egress]``. Raises `InputError`."""
    place, slash, rest = text.rpartition("/")
    interface, _, moment = rest.partition("@")
    kind, colon, name = place.partition(":")
    if not colon:
        kind, name = "", place
    elif kind not in PLACES:
        forms = ", ".join(one.form for one in PLACES.values())
        raise InputError(f"an interface is in one of these places: {forms}").at(repr(text))
    wrong = not interface or (slash and not name) or (moment and moment not in get_args(Moment))
    if wrong or rest.endswith("@"):
        raise InputError(
            f"{text!r} names no interface: write [PLACE/]INTERFACE[@arrival|@egress], such as eth0 "
            "or container:web/eth0"
        )
    return Target(text, interface, kind, name, cast(Moment, moment) if moment else None)


def find(target: Target) -> Place:
    """Where a target is. Raises `InputError` where there is no such place."""
    return PLACES[target.kind].find(target.place)
