"""An interface that is observed: what kind it is, where it is, and which CPUs are told of its
packets.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, get_args

from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.base.files import read_text
from tailtap.base.foreign import parse_json
from tailtap.base.units import mask_cpus, parse_cpus
from tailtap.host.changes.systemd import network_at, network_of
from tailtap.host.containers.podman import pid_of
from tailtap.host.net.inside import NAMESPACES, inside
from tailtap.host.net.port_work import device_interrupts
from tailtap.records.live import Moment
from tailtap.records.machine import Virtualization
from tailtap.remote.local import SYSTEM_PATH, LocalHost


@dataclass(frozen=True)
class Place:
    """A network namespace."""

    path: str
    words: str
    virtualization: Virtualization = "none"
    """What keeps it apart from the machine."""


OWN = "/proc/self/ns/net"


def _namespace(name: str) -> Place:
    """The network namespace of a name, a path, or, of no name, this process's own."""
    if not name:
        return Place(OWN, "this machine")
    path = Path(name) if name.startswith("/") else NAMESPACES / name
    if network_at(path) is None:
        raise InputError(f"there is no network namespace {name}: `ip netns list` names them")
    return Place(str(path), f"network namespace {name}")


def _process(name: str) -> Place:
    if not (name.isascii() and name.isdecimal()) or network_of(name) is None:
        raise InputError(f"pid:{name}: there is no process of this number that we may look at")
    called = read_text(Path("/proc", name, "comm")) or "gone"  # it ended meanwhile
    return Place(f"/proc/{name}/ns/net", f"process {name} ({called})")


STATES = {
    "crun": ("/run/crun/{name}/status", ("pid",)),
    "runc": ("/run/runc/{name}/state.json", ("init_process_pid",)),
}
"""Where programs without a command for it keep the state of a container, and what is its number
there."""
CRI = ("--output", "go-template", "--template", "{{.info.pid}}")
_STATE = ("--format", "{{.State.Pid}}")


def _container(name: str) -> Place:
    """That of a container's first process. Raises `InputError`, also for a name twice."""
    found = dict(_running(name))
    if not found:
        asked = ", ".join([*filter(is_there, ASKED), *STATES])
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
        yield "tailtap", pid_of(name)
    except MachineError:
        return


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


def _of_cri(name: str) -> int | None:
    [container, *_] = said(["crictl", "ps", "--quiet", "--name", name]).split() or [name]
    return number(["crictl", "inspect", *CRI, container])


ASKED: Mapping[str, Callable[[str], int | None]] = {
    "podman": _inspected("podman"),
    "docker": _inspected("docker"),
    "nerdctl": _inspected("nerdctl"),
    "crictl": _of_cri,
    "lxc-info": lambda name: number(["lxc-info", "--name", name, "--pid", "--no-humanize"]),
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


def _pod(name: str) -> Place:
    """That of the process which holds a pod of Kubernetes on this node (crictl), or of Podman."""
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
    return ASKED["podman"](holder) if holder else None


PLACES: Mapping[str, tuple[str, Callable[[str], Place]]] = {
    "": ("NETNS", _namespace),
    "container": ("container:NAME", _container),
    "pid": ("pid:NUMBER", _process),
    "pod": ("pod:NAME", _pod),
}
"""Every kind of place by the word before the colon: how it is typed, and what finds the place of a
name, or raises `InputError`.
"""


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
        forms = ", ".join(form for form, _ in PLACES.values())
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
    return PLACES[target.kind][1](target.place)


T = TypeVar("T")

NET = Path("/sys/class/net")
ROOT = Path("/")
PHYSICAL = "physical"
WORDS = {
    "tun": "tap device",
    "vlan": "VLAN",
    "veth": "veth",
    "bridge": "bridge",
    "bond": "bond",
    "netkit": "netkit",
    "macvlan": "macvlan",
    "wireguard": "WireGuard",
    "gre": "GRE",
    "ppp": "PPP",
}
"""What the kernel calls a kind of interface, and what people do; others are called as they are."""
_TUN = re.compile(r"^iff:\s*(\S+)", re.MULTILINE)
_XDP_DROPS = re.compile(r"^\s*\S*xdp_?drops?: (\d+)$", re.MULTILINE)
"""What drivers call what XDP programs dropped: ``rx_queue_0_xdp_drops``, ``rx_xdp_drop``."""


class Xdp(NamedTuple):
    """The XDP programs on an interface, which run before its packets are stamped as they arrive,
    and how many packets they ever dropped where the driver counts them.
    """

    programs: Sequence[str]
    dropped: int | None

    def since(self, before: Xdp | None) -> Xdp:
        """Those that were there then or are now, and what they dropped since."""
        before = before or self
        programs = list(dict.fromkeys([*before.programs, *self.programs]))
        if before.dropped is None or self.dropped is None:
            return Xdp(programs, None)
        return Xdp(programs, max(0, self.dropped - before.dropped))


@dataclass(frozen=True, eq=False)
class Interface:
    """An interface, as it was found; one that was found twice is two."""

    target: Target
    place: Place
    inode: int
    """The number of its network namespace."""
    index: int
    kind: str
    """As the kernel calls it; `PHYSICAL` for a network card."""
    words: str
    """What kind it is, as people read it."""
    steered: Sequence[int]
    """The CPUs that its packets are steered to (RPS); empty: none."""
    interrupts: Mapping[str, Sequence[int]]
    """The CPUs that each interrupt of its card may go to, by number."""
    is_threaded: bool

    def inside(self, call: Callable[[str], T]) -> T:
        """What a call returns for its name in its namespace. Raises `MachineError`."""
        return _inside(self.place, partial(call, self.name))

    @property
    def name(self) -> str:
        """What it is called in its namespace."""
        return self.target.interface

    @property
    def namespace(self) -> str | None:
        """That of `tailtap tap`; None for our own."""
        return None if not self.target.kind and not self.target.place else self.place.path


def look_at(target: Target) -> Interface:
    """The interface that a target means. Raises `InputError` where there is none, `MachineError`.

    Nothing is changed: what must be seen of another namespace is seen by a thread in it.
    """
    place = find(target)
    found = _inside(place, partial(_read, target.interface))
    if found is None:
        there = f"in {place.words}" if target.place else "here"
        raise InputError(f"there is no interface {target.interface} {there}").at(target.text)
    link, steered, interrupts, is_threaded, device = found
    info = link.get("linkinfo", {})
    kind = info.get("info_kind") or (PHYSICAL if device else link.get("link_type", "unknown"))
    if kind == "tun" and info.get("info_data", {}).get("type") == "tun":
        kind = "tun device"
    words = WORDS.get(kind, "network card" if kind == PHYSICAL else kind)
    if link.get("link_type") != "ether":
        words += ", packets of IP"
    if device:
        words += f" ({device})"
    if master := link.get("master"):
        words += f", a port of the {info.get('info_slave_kind', 'interface')} {master}"
    return Interface(
        target=target,
        place=place,
        inode=Path(place.path).stat().st_ino,
        index=link["ifindex"],
        kind=kind,
        words=words,
        steered=steered,
        interrupts=interrupts,
        is_threaded=is_threaded,
    )


def _inside(place: Place, call: Callable[[], T]) -> T:
    if network_at(Path(place.path)) == network_of("self"):
        return call()
    [found] = inside([(place.path, call)])
    return found


def xdp_of(name: str) -> Xdp:
    """The XDP programs on an interface of this namespace."""
    programs = [one["prog"] for one in _link(name).get("xdp", {}).get("attached", [])]
    told = ""
    with contextlib.suppress(MachineError):  # without ethtool
        told = LocalHost().run(["ethtool", "-S", name], check=False).stdout if programs else ""
    dropped = [int(count) for count in _XDP_DROPS.findall(told)]
    words = [f"{one.get('name', 'without a name')} (id {one['id']})" for one in programs]
    return Xdp(words, sum(dropped) if dropped else None)


def xdp_words(programs: Sequence[str], name: str) -> str:
    """That programs run on an interface."""
    several = "s" if len(programs) > 1 else ""
    return f"the XDP program{several} {' and '.join(programs)} ran on {name}"


def passed(_: str) -> Mapping[str, tuple[int, int]]:
    """How many packets each interface of this namespace has received and sent, as it counts."""
    return {
        link["ifname"]: (link["stats64"]["rx"]["packets"], link["stats64"]["tx"]["packets"])
        for link in _links()
    }


_Found = tuple[dict[str, Any], Sequence[int], Mapping[str, Sequence[int]], bool, str]


def _read(name: str) -> _Found | None:
    """What the namespace that this thread is in says of an interface."""
    folder = NET / name
    if name in (".", "..") or not folder.exists():
        return None
    link = _link(name)
    device = folder / "device"
    driver, interrupts = "", dict[str, str]()
    if device.exists():
        driver = (device / "driver").resolve().name
        # A paravirtual card's are those of the device that it is on.
        at = device.resolve()
        interrupts = device_interrupts(at, ROOT) or device_interrupts(at.parent, ROOT)
    masks = (read_text(path) for path in folder.glob("queues/rx-*/rps_cpus"))
    return (
        link,
        sorted({cpu for mask in masks if mask for cpu in mask_cpus(mask)}),
        {number: parse_cpus(going) for number, going in interrupts.items()},
        read_text(folder / "threaded") == "1",
        driver,
    )


def _link(name: str) -> dict[str, Any]:
    return _links("dev", name)[0]


def _links(*words: str) -> list[dict[str, Any]]:
    done = LocalHost().run(["ip", "-d", "-s", "-json", "link", "show", *words])
    links: list[dict[str, Any]] = json.loads(done.stdout)
    return links


def behind_tap(interface: str, proc: Path = Path("/proc")) -> Sequence[int]:
    """The processes that hold the other end of a tap device: a virtual machine's, mostly."""
    found = []
    for process in proc.glob("[0-9]*"):
        try:
            opened = [path for path in (process / "fd").iterdir()
                      if path.readlink() == Path("/dev/net/tun")]  # fmt: skip
            told = [read_text(process / "fdinfo" / path.name) or "" for path in opened]
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if any((match := _TUN.search(text)) and match[1] == interface for text in told):
            found.append(int(process.name))
    return sorted(found)
