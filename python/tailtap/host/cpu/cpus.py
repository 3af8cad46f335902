"""Which CPUs this machine has, and which of them we may use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.base.units import parse_cpus
from tailtap.host.facts.machine import read

FOLDER = Path("/sys/devices/system/cpu")


def usable(folder: Path = FOLDER) -> set[int]:
    """The CPUs that this process may run on.

    Those that `isolcpus` keeps free are no part of anybody's affinity, but may be asked for.
    """
    before = os.sched_getaffinity(0)
    found = set(before)
    for cpu in cpus_in(folder / "online"):
        with contextlib.suppress(OSError):  # outside of our control group
            os.sched_setaffinity(0, {cpu})
            found.add(cpu)
    os.sched_setaffinity(0, before)
    return found


def away_from(*occupied: Collection[int]) -> set[int]:
    """CPUs of this process that are in none of `occupied`, or at least not in the last of them."""
    allowed = os.sched_getaffinity(0)
    return allowed.difference(*occupied) or allowed.difference(occupied[-1]) or allowed


def is_offline(cpu: int, folder: Path = FOLDER) -> bool:
    """Whether this CPU is there, but switched off."""
    return read(folder / f"cpu{cpu}/online") == "0"


ROOT = Path("/")
NODES = "sys/devices/system/node"


@dataclass(frozen=True)
class Numa:
    """What the kernel says of CPUs, and of the network cards that were asked for."""

    online: tuple[int, ...]
    nodes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The CPUs of each node that are on; empty where the kernel knows no nodes (CONFIG_NUMA)."""
    cards: Mapping[str, int] = field(default_factory=dict)
    """The node of each card that says it; the kernel says -1 of others, such as virtual ones."""

    @classmethod
    def of(cls, cards: Iterable[str] = (), root: Path = ROOT) -> Numa:
        """This machine's. `root` stands in for ``/`` in tests."""
        online = cpus_in(root / "sys/devices/system/cpu/online") or (0,)
        folders = {int(path.name[4:]): path for path in (root / NODES).glob("node[0-9]*")}
        nodes = {
            node: tuple(cpu for cpu in cpus_in(folders[node] / "cpulist") if cpu in online)
            for node in sorted(folders)
        }
        found = {card: _node_of(root / "sys/class/net" / card / "device") for card in cards}
        return cls(online, nodes, {card: node for card, node in found.items() if node is not None})

    def of_cpus(self, cpus: Iterable[int]) -> tuple[int, ...]:
        wanted = set(cpus)
        return tuple(sorted(node for node, own in self.nodes.items() if wanted & set(own)))

    def of_card(self, card: str) -> int | None:
        """The node of a card; of one that does not say it, the only node that there is."""
        if card in self.cards:
            return self.cards[card]
        return next(iter(self.nodes)) if len(self.nodes) == 1 else None


def _node_of(device: Path) -> int | None:
    # The device of a virtio card is the child of the one on the PCI bus, which has the node.
    for folder in (device, device.resolve().parent):
        with contextlib.suppress(TypeError, ValueError):
            node = int(read(folder / "numa_node") or "")
            return node if node >= 0 else None
    return None


def cpus_in(path: Path) -> tuple[int, ...]:
    """The CPUs in a list of the kernel's; empty when there is none."""
    with contextlib.suppress(ValueError):
        return parse_cpus(read(path) or "")
    return ()
