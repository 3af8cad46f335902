"""An interface that is observed: what kind it is, where it is, and which CPUs are told of its
packets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailtap.host.changes.processes import network_at, network_of
from tailtap.host.changes.resource import read_text
from tailtap.host.net.card_interrupts import device_interrupts
from tailtap.host.net.inside import inside
from tailtap.measure.observe.targets import Place, Target, find
from tailtap.records.cpulist import mask_cpus, parse_cpus
from tailtap.records.errors import InputError
from tailtap.records.traits import Virtualization
from tailtap.remote.local import LocalHost

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
    if network_at(Path(place.path)) == network_of("self"):
        found = _read(target.interface)
    else:
        [found] = inside([(place.path, partial(_read, target.interface))])
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


_Found = tuple[dict[str, Any], Sequence[int], Mapping[str, Sequence[int]], bool, str]


def _read(name: str) -> _Found | None:
    """What the namespace that this thread is in says of an interface."""
    folder = NET / name
    if name in (".", "..") or not folder.exists():
        return None
    done = LocalHost().run(["ip", "-details", "-json", "link", "show", "dev", name])
    [link, *_] = json.loads(done.stdout)
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
