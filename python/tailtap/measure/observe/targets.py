"""What is observed: an interface, and where it is. A kind of place finds the network
namespace that a name means.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast, get_args

from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.base.foreign import parse_json
from tailtap.host.changes.processes import network_at, network_of
from tailtap.host.containers import engines
from tailtap.host.net.inside import NAMESPACES
from tailtap.records.live import Moment
from tailtap.records.machine import Virtualization
from tailtap.remote.local import SYSTEM_PATH, LocalHost


@dataclass(frozen=True)
class Place:
    """A network namespace."""

    path: str
    """The file that stands for it."""
    words: str
    """Whose it is, as people read it."""
    virtualization: Virtualization = "none"
    """What keeps it apart from the machine."""


class PlaceKind(Protocol):
    """One kind of place."""

    @property
    def form(self) -> str:
        """How it is typed, as in ``container:NAME``."""
        ...

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        ...

    def find(self, name: str) -> Place:
        """The place of this name. Raises `InputError` where there is none."""
        ...


OWN = "/proc/self/ns/net"
"""The namespace that this process is in."""


class Namespaces:
    """What stands before an interface without a kind of its own."""

    form = "NETNS"
    words = "a network namespace, by its name in `ip netns list` or by a path"

    def find(self, name: str) -> Place:
        """That of a name, a path, or, of no name, this process's own."""
        if not name:
            return Place(OWN, "this machine")
        path = Path(name) if name.startswith("/") else NAMESPACES / name
        if network_at(path) is None:
            raise InputError(f"there is no network namespace {name}: `ip netns list` names them")
        return Place(str(path), f"network namespace {name}")


class Processes:
    """A process by its number."""

    form = "pid:NUMBER"
    words = "the network namespace of a process, by its number"

    def find(self, name: str) -> Place:
        """That of the process."""
        if not (name.isascii() and name.isdecimal()) or network_of(name) is None:
            raise InputError(f"pid:{name}: there is no process of this number that we may look at")
        return Place(f"/proc/{name}/ns/net", f"process {name} ({_name(name)})")


def _name(number: str) -> str:
    try:
        return Path("/proc", number, "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # it ended meanwhile
        return "gone"


STATES = {
    "crun": ("/run/crun/{name}/status", ("pid",)),
    "runc": ("/run/runc/{name}/state.json", ("init_process_pid",)),
}
"""Where programs without a command for it keep the state of a container, and what is its number
there."""
CRI = ("--output", "go-template", "--template", "{{.info.pid}}")
_STATE = ("--format", "{{.State.Pid}}")


class Containers:
    """A container by its name."""

    form = "container:NAME"
    words = "a container of Podman, Docker, containerd, CRI-O, LXC, crun or runc, by its name or id"

    def find(self, name: str) -> Place:
        """That of the container's first process. Raises `InputError`, also for a name twice."""
        found = dict(_running(name))
        if not found:
            asked = ", ".join(dict.fromkeys(_asked()))
            raise InputError(f"container:{name}: none of this name runs here; asked: {asked}")
        if len(set(found.values())) > 1:
            raise InputError(
                f"container:{name}: {' and '.join(found)} each run one: say which by pid:NUMBER, "
                f"{', '.join(f'{pid} of {program}' for program, pid in found.items())}"
            )
        [(program, pid), *_] = found.items()
        return Place(f"/proc/{pid}/ns/net", f"container {name} of {program}", "container")


def _running(name: str) -> Iterator[tuple[str, int]]:
    """Who runs a container of the name, and the number of its first process."""
    if not name or "/" in name or name.startswith("-"):
        raise InputError(f"container:{name}: this is no name of a container")
    for program, ask in ASKED.items():
        if is_there(program) and (pid := ask(name)):
            yield program, pid
    for program, (place, path) in STATES.items():
        if pid := _stated(Path(place.format(name=name)), path):
            yield program, pid
    try:
        yield "tailtap", engines.pid_of(name)
    except MachineError:
        return


def _asked() -> Iterator[str]:
    yield from (program for program in ASKED if is_there(program))
    yield from STATES


def is_there(program: str) -> bool:
    """Whether a program is installed."""
    return shutil.which(program, path=SYSTEM_PATH) is not None


def number(command: Sequence[str]) -> int | None:
    """What a command prints, where that is the number of a process."""
    told = said(command)
    return int(told) if told.isascii() and told.isdecimal() and int(told) > 0 else None


def said(command: Sequence[str]) -> str:
    """What a command prints; nothing where it fails."""
    try:
        done = LocalHost().run(command, check=False)
    except TailtapError:  # it hangs
        return ""
    return done.stdout.strip() if done.status == 0 else ""


def _inspected(program: str) -> Callable[[str], int | None]:
    return lambda name: number([program, "container", "inspect", *_STATE, name])


def _of_lxc(name: str) -> int | None:
    return number(["lxc-info", "--name", name, "--pid", "--no-humanize"])


def _of_cri(name: str) -> int | None:
    [container, *_] = said(["crictl", "ps", "--quiet", "--name", name]).split() or [name]
    return number(["crictl", "inspect", *CRI, container])


ASKED: Mapping[str, Callable[[str], int | None]] = {
    "podman": _inspected("podman"),
    "docker": _inspected("docker"),
    "nerdctl": _inspected("nerdctl"),
    "crictl": _of_cri,
    "lxc-info": _of_lxc,
}
"""By program what tells the number of a container's first process."""


def _stated(path: Path, keys: Sequence[str]) -> int | None:
    """A number in the state that a program keeps in a file of JSON."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        for key in keys:
            found = found[key]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    is_running = type(found) is int and Path(f"/proc/{found}/ns/net").exists()
    return found if is_running else None


class Pods:
    """A pod by its name."""

    form = "pod:NAME"
    words = "a pod of Kubernetes on this node (crictl), or of Podman, by its name"

    def find(self, name: str) -> Place:
        """That of the process which holds it."""
        if not name or "/" in name or name.startswith("-"):
            raise InputError(f"pod:{name}: this is no name of a pod")
        for program, ask in (("crictl", _pod_of_cri), ("podman", _pod_of_podman)):
            if is_there(program) and (pid := ask(name)):
                return Place(f"/proc/{pid}/ns/net", f"pod {name} of {program}", "container")
        raise InputError(
            f"pod:{name}: neither crictl nor podman runs one here: name a process of it, pid:NUMBER"
        )


def _pod_of_cri(name: str) -> int | None:
    found = said(["crictl", "pods", "--quiet", "--state", "ready", "--name", f"^{name}$"]).split()
    return number(["crictl", "inspectp", *CRI, found[0]]) if found else None


def _pod_of_podman(name: str) -> int | None:
    holder = said(["podman", "pod", "inspect", "--format", "{{.InfraContainerID}}", name])
    if not holder:
        return None
    return number(["podman", "container", "inspect", "--format", "{{.State.Pid}}", holder])


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
