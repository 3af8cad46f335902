"""An interface that is observed: what kind it is, where it is, and which CPUs are told of its
packets.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tailtap.base.errors import InputError, MachineError
from tailtap.base.units import mask_cpus, parse_cpus
from tailtap.host.changes.processes import network_at, network_of
from tailtap.host.changes.resource import read_text
from tailtap.host.net.card_interrupts import device_interrupts
from tailtap.host.net.inside import inside
from tailtap.measure.observe.targets import Place, Target, find
from tailtap.records.machine import Virtualization
from tailtap.remote.local import LocalHost

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
    """Whether threads of the kernel poll it."""

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

    @property
    def virtualization(self) -> Virtualization:
        """What keeps its place apart from the machine."""
        return self.place.virtualization


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


def passed(name: str) -> tuple[int, int]:
    """How many packets an interface of this namespace has received and sent, as it counts them."""
    counts = _link(name)["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


_Found = tuple[dict[str, Any], Sequence[int], Mapping[str, Sequence[int]], bool, str]


def _read(name: str) -> _Found | None:
    """What the namespace that this thread is in says of an interface."""
    folder = NET / name
    if name in (".", "..") or not folder.exists():
        return None
    link = _link(name)
    device = folder / "device"
    driver = (device / "driver").resolve().name if device.exists() else ""
    interrupts = _interrupts(device) if device.exists() else {}
    masks = (read_text(path) for path in folder.glob("queues/rx-*/rps_cpus"))
    return (
        link,
        sorted({cpu for mask in masks if mask for cpu in mask_cpus(mask)}),
        {number: parse_cpus(going) for number, going in interrupts.items()},
        read_text(folder / "threaded") == "1",
        driver,
    )


def _link(name: str) -> dict[str, Any]:
    done = LocalHost().run(["ip", "-d", "-s", "-json", "link", "show", "dev", name])
    link: dict[str, Any] = json.loads(done.stdout)[0]
    return link


def _interrupts(device: Path) -> dict[str, str]:
    """Those of a card; a paravirtual one's are those of the device that it is on."""
    at = device.resolve()
    return device_interrupts(at, ROOT) or device_interrupts(at.parent, ROOT)


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
