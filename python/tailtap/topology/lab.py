"""The lab on one machine: network namespaces joined by veth pairs.

```
namespace tt-ID-gen     namespace tt-ID-tap                    namespace tt-ID-dut
    tt-gen ═══════════════ tt-a0 ─tap ingress─▶ tt-a1 ══════════ tt-in
    tt-rev ═══════════════ tt-b1       tt-b0 ◀─tap egress─          │ forwarder
                                         ╚═════════════════════ tt-out
```

Traffic in both directions has a second generator, on `tt-rev`. Its packets pass the same pieces
the other way: they are stamped as they come to `tt-b1`, go on through `tt-b0` into the DuT's egress
port, and are stamped and absorbed as they come back to `tt-a1`.

Network cards of this machine can take the places of `tt-a1`, `tt-in`, `tt-out` and `tt-b0`, with
cables between them. They keep these names for as long as they are lent to the lab.

A packet that is sent into a veth pair is received by the other end in the *sender's* softirq, on
the sender's core, unless its port is steered elsewhere. So:

- The DuT's ingress port is steered to the DuT's cores (receive packet steering), as the
  interrupts of a network card would be: the DuT works on its own cores, woken up by an interrupt.
  Those of a real card are sent there as well.
- The taps' ports are left alone. The ingress tap then stamps on the generator's core as it hands
  the packet to the DuT, and the egress stamp is taken on the DuT's as the DuT hands it back: no
  wake-up and no waiting for another core is counted as the DuT's latency.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tailtap.errors import MachineError
from tailtap.host import CommandFailed, cards
from tailtap.host.clean import remove_namespace
from tailtap.host.journal import Journal
from tailtap.host.local import LocalHost
from tailtap.host.namespace import NamespaceHost
from tailtap.host.process import Process

T = TypeVar("T")

REVERSE_PORT = "tt-rev"
REVERSE_TAP = "tt-b1"
GENERATOR_PORT = "tt-gen"
INGRESS_TAP = "tt-a0"
TO_DUT = "tt-a1"
FROM_DUT = "tt-b0"
DUT_INGRESS = "tt-in"
DUT_EGRESS = "tt-out"


@dataclass(frozen=True)
class Way:
    """One direction through the DuT: the ports that packets pass, in their order."""

    generator: str
    ingress: str
    """Where the tap stamps them before the DuT."""
    onward: str
    """Through which they leave for the DuT."""
    egress: str
    """Where the tap stamps them after it."""


FORWARD = Way(GENERATOR_PORT, INGRESS_TAP, TO_DUT, FROM_DUT)
REVERSE = Way(REVERSE_PORT, REVERSE_TAP, FROM_DUT, TO_DUT)


@dataclass(frozen=True)
class Cables:
    """Two cables between network cards of this machine, in front of the DuT and behind it."""

    dut: tuple[str, str]
    """The DuT's ingress and egress port."""
    tap: tuple[str, str]
    """What is at the other ends."""


ETHERNET_OVERHEAD = 18
"""Bytes of a frame that the MTU does not count: the Ethernet header and the check sequence."""
DEFAULT_MTU = 1500
FIRST_INDEX = 101
"""The number of the first end of a veth pair: beyond those that namespaces hand out themselves."""
UP_SECONDS = 5.0
"""How long links may take to come up."""

# IPv6 would send router solicitations and multicast reports of its own through the DuT.
_NO_IPV6 = """for scope in all default; do
    file=/proc/sys/net/ipv6/conf/$scope/disable_ipv6
    [ ! -e $file ] || echo 1 > $file
done"""
_STEER = """for file in /sys/class/net/"$1"/queues/rx-*/rps_cpus; do
    echo "$2" > "$file" && cat "$file" || exit 1
done"""


class Lab:
    """Namespaces and links of one measurement. Use it as a context; leaving removes everything."""

    def __init__(
        self, frame_size: int, *, both_ways: bool = False, cables: Cables | None = None
    ) -> None:
        """A lab for frames of `frame_size` bytes, check sequence included; makes nothing yet.

        With `both_ways` it has a second generator's port, behind the DuT. Without `cables`, the
        DuT hangs on veth pairs.
        """
        self._both_ways = both_ways
        self.cables = cables
        self.mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
        """Of every link, in bytes."""
        self._local = LocalHost()
        self._hosts: list[NamespaceHost] = []
        self._ports: list[tuple[NamespaceHost, str]] = []
        self._indexes = itertools.count(FIRST_INDEX)
        self._loans: dict[str, cards.Loan] = {}
        self._journal: Journal | None = None
        self._kept = contextlib.ExitStack()

    def __enter__(self) -> Lab:
        """Make the generator's and the taps' namespace and the link between them."""
        self._journal = Journal.create()
        try:
            self.generator = self.add_namespace("gen")
            self.tap = self.add_namespace("tap")
            self.add_link(self.generator, GENERATOR_PORT, self.tap, INGRESS_TAP)
            if self._both_ways:
                self.add_link(self.generator, REVERSE_PORT, self.tap, REVERSE_TAP)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self.remove()

    def add_namespace(self, role: str) -> NamespaceHost:
        """Make the namespace ``tt-ID-ROLE``, without IPv6 and with all links down."""
        return self._named_namespace(role, "add")

    def attach_namespace(self, role: str, pid: int) -> NamespaceHost:
        """Call the network namespace of process `pid` ``tt-ID-ROLE``; it then counts as the lab's.

        It loses IPv6. Links go into it like into any other.
        """
        return self._named_namespace(role, "attach", str(pid))

    def name_of(self, role: str) -> str:
        """What the namespace, container or domain of `role` is called."""
        return f"tt-{self.journal.identity}-{role}"

    def _named_namespace(self, role: str, verb: str, *more: str) -> NamespaceHost:
        name = self.name_of(role)
        self.journal.add("namespace", name)
        host = NamespaceHost(name)
        self._hosts.append(host)  # before it exists: an interruption while it is made removes it
        self._local.run(["ip", "netns", verb, name, *more])
        host.run(["sh", "-c", _NO_IPV6])
        return host

    def add_link(self, host: NamespaceHost, port: str, peer: NamespaceHost, peer_port: str) -> None:
        """Join two namespaces by a veth pair, up and wide enough for the frames."""
        # Both ends are made inside: no link of ours ever shows up among the machine's own. Where
        # they have the same number, the kernel takes them for one physical interface and tells of
        # their state up to a second later (linkwatch_urgent_event()), into the measurement.
        one, other = next(self._indexes), next(self._indexes)
        self._local.run(
            (
                f"ip link add {port} netns {host.namespace} index {one} mtu {self.mtu} type veth "
                f"peer name {peer_port} netns {peer.namespace} index {other} mtu {self.mtu}"
            ).split()
        )
        for end, name in ((host, port), (peer, peer_port)):
            self._local.run(["ip", "-n", end.namespace, "link", "set", "dev", name, "up"])
            self._ports.append((end, name))

    def connect(self, host: NamespaceHost, cpus: Iterable[int]) -> None:
        """Give `host` the DuT's two ports, with the taps behind them and receive work on `cpus`.

        Raises `InputError`, `MachineError` for cards that cannot be lent.
        """
        if self.cables is None:
            self.add_link(self.tap, TO_DUT, host, DUT_INGRESS)
            self.add_link(host, DUT_EGRESS, self.tap, FROM_DUT)
        else:
            self.lend_to_taps(self.cables)
            for card, port in zip(self.cables.dut, (DUT_INGRESS, DUT_EGRESS), strict=True):
                self._lend(card, host, port)
        for port in (DUT_INGRESS, DUT_EGRESS) if self._both_ways else (DUT_INGRESS,):
            self.steer(host, port, cpus)

    def lend_to_taps(self, cables: Cables) -> None:
        """Give the taps the cards at their ends of the cables. Raises as `connect` does.

        Their interrupts go where this process is, which keeps off the measured CPUs.
        """
        for card, port in zip(cables.tap, (TO_DUT, FROM_DUT), strict=True):
            self._lend(card, self.tap, port)
            cards.steer_interrupts(self._loans[port], os.sched_getaffinity(0))

    def _lend(self, card: str, host: NamespaceHost, port: str) -> None:
        loan = cards.Loan.of(card, host.namespace, port)
        self._loans[port] = self.keep(cards.lent(loan, self.mtu, self.journal))
        self._ports.append((host, port))

    @contextlib.contextmanager
    def handed_over(self, port: str) -> Iterator[str]:
        """The PCI address of the card that is the DuT's `port`, in the hands of vfio-pci.

        It is no port of the lab any more. Raises `MachineError`.
        """
        loan = self._loans[port]
        self._ports = [(host, name) for host, name in self._ports if name != port]
        cards.give_back(loan)
        with cards.handed_over(loan.interface, self.journal) as card:
            yield card.address

    def facts(self) -> dict[str, Any]:
        """The cards in the lab by the port that each is, for ``run.json``; nothing without any."""
        lent = {port: loan.facts() for port, loan in self._loans.items()}
        return {"cards": lent} if lent else {}

    def add_tap(self, host: NamespaceHost, port: str) -> None:
        """Make a tap device, whose other end is a virtual machine's port; up when that is there."""
        host.run(["ip", "tuntap", "add", "dev", port, "mode", "tap", "vnet_hdr"])
        host.run(["ip", "link", "set", "dev", port, "mtu", str(self.mtu), "up"])
        self._ports.append((host, port))

    @property
    def journal(self) -> Journal:
        """Where everything that is made for this lab is entered before it is made."""
        assert self._journal is not None
        return self._journal

    def keep(self, made: contextlib.AbstractContextManager[T]) -> T:
        """Enter the context of something that stands in the lab; it is left before the links go."""
        return self._kept.enter_context(made)

    def steer(self, host: NamespaceHost, port: str, cpus: Iterable[int]) -> None:
        """Move the receive work of `port` to `cpus`, and read back that it is so.

        Raises `MachineError` when the kernel cannot (CONFIG_RPS) or did not. A card's interrupts
        go there too, as far as they can be moved.
        """
        if port in self._loans:
            cards.steer_interrupts(self._loans[port], cpus)
        mask = cpu_mask(cpus)
        try:
            answer = host.run(["sh", "-c", _STEER, "steer", port, mask]).stdout.split()
        except CommandFailed as error:
            raise MachineError(
                f"cannot steer the receive work of {port} to CPU mask {mask}: this needs a kernel "
                f"with CONFIG_RPS and these CPUs online: {error.reason}"
            ) from error
        if not answer or any(_mask_value(found) != _mask_value(mask) for found in answer):
            raise MachineError(
                f"the receive work of {port} should go to CPU mask {mask}, but the kernel says "
                f"{' '.join(answer) or 'that there is no receive queue'}"
            )

    def wait_until_up(self) -> None:
        """Return when every port is up. Raises `MachineError` when one does not come up."""
        deadline = time.monotonic() + (cards.UP_SECONDS if self._loans else UP_SECONDS)
        while down := self.broken_ports():
            if time.monotonic() > deadline:
                hint = ": check the cables and dut.ports, tap.ports" if self._loans else ""
                raise MachineError(f"the link did not come up: {down[0]}{hint}")
            time.sleep(0.005)

    def broken_ports(self) -> list[str]:
        """A sentence for every port that is gone or carries no packets."""
        broken: list[str] = []
        for host in self._hosts:
            found = {row["ifname"]: row for row in self._links(host)}
            for owner, port in self._ports:
                if owner is not host or (port in found and _carries(found[port])):
                    continue
                row = found.get(port)
                what = "vanished" if row is None else f"is {row['operstate'].lower()}"
                card = f" (the card {self._loans[port].interface})" if port in self._loans else ""
                broken.append(f"interface {port}{card} of {host.name} {what}")
        return broken

    def received(self, host: NamespaceHost, port: str) -> int:
        """Packets that `port` has received since it exists."""
        row = self._links(host, "-s", port=port)[0]
        return int(row["stats64"]["rx"]["packets"])

    def watch(self) -> list[Process]:
        """Processes that print a line when a link of the lab is deleted: `deleted_port` reads it.

        They sleep until then: polling would disturb what is measured.
        """
        return [
            self._local.start(["ip", "-n", host.namespace, "monitor", "link"])
            for host in self._hosts
        ]

    def deleted_port(self, line: str) -> str | None:
        """The port that a line of a `watch` process says is gone."""
        words = line.split()
        if words[:1] != ["Deleted"] or len(words) < 3:
            return None
        port = words[2].partition("@")[0].rstrip(":")
        return port if any(port == name for _, name in self._ports) else None

    def remove(self) -> None:
        """Leave what was kept, newest first, then remove the namespaces with everything in them.

        The journal goes last, and stays when something could not be removed.
        """
        try:
            self._kept.close()
        finally:
            for host in self._hosts:
                remove_namespace(host.namespace)
            self._hosts.clear()
            self._ports.clear()
            self._loans.clear()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _links(
        self, host: NamespaceHost, *options: str, port: str | None = None
    ) -> Sequence[dict[str, Any]]:
        command = ["ip", "-n", host.namespace, "-j", *options, "link", "show"]
        if port is not None:
            command += ["dev", port]
        # A namespace that somebody deleted has no links.
        with contextlib.suppress(ValueError):
            answer = json.loads(self._local.run(command, check=port is not None).stdout)
            return cast("Sequence[dict[str, Any]]", answer)
        return []


def _carries(row: Mapping[str, Any]) -> bool:
    """Whether a link is up at both ends, has a queueing discipline, and the kernel has told so.

    Those whose driver never tells stay "unknown".
    """
    told = row["operstate"] in ("UP", "UNKNOWN")
    return told and {"UP", "LOWER_UP"} <= set(row["flags"]) and row.get("qdisc") != "noop"


def cpu_mask(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes a set of them: hexadecimal, groups of 32 bits, commas between."""
    value = sum(1 << cpu for cpu in set(cpus))
    groups: list[str] = []
    while True:
        groups.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(groups))


def _mask_value(mask: str) -> int:
    return int(mask.replace(",", ""), 16)
