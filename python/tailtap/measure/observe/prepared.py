"""What is known before observing begins: where packets are stamped, how they are matched, who
serves them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailtap.base.errors import InputError, TailtapError
from tailtap.host.cpu.cpus import usable
from tailtap.host.facts.needs import require_root
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.lab.forwarders.served import Server
from tailtap.lab.instruments.tracer import spare_cpu
from tailtap.measure.observe.interfaces import Interface, Xdp, look_at, xdp_of
from tailtap.measure.observe.look import (
    PACKETS,
    TRANSACTIONS,
    UNHASHED,
    Asked,
    Looked,
    Way,
    back_of,
    look,
    unlooked,
)
from tailtap.measure.observe.serving import Serving, serving_of
from tailtap.records.live import ObservedPoint, ObservedServer
from tailtap.records.machine import Traits

SLUGS = ("001-observed", "002-observed-back")
"""The run folders of the way there, and of the way back."""


@dataclass(frozen=True)
class Prepared:
    """An observation that can begin."""

    asked: Asked
    ways: Sequence[Way]
    """Where packets are stamped: the way there and, with ``both``, the way back."""
    key: str
    match: str
    """``packets`` or ``transactions``."""
    serving: Serving
    spare: int | None
    """A CPU that serves nothing, for whatever we do ourselves; None: there is none."""
    looked: Looked

    @property
    def hashed(self) -> bool:
        """Whether a hash of each packet is enough, so that no byte of it is kept."""
        return self.match == PACKETS and self.key not in UNHASHED

    @property
    def traced(self) -> bool:
        """Whether the cores that serve are traced: what they did is joined with marks alone."""
        marked = self.hashed or self.match == TRANSACTIONS
        return self.asked.trace != "none" and marked and bool(self.serving.cpus)

    @property
    def traits(self) -> Traits:
        """What is known of what the device runs on."""
        kinds = {end.interface.virtualization for way in self.ways for end in way}
        if any(server.served.by == "vcpu" for server in self.serving.servers):
            return Traits(own_kernel=True, virtualization="machine")
        return Traits(virtualization="container" if "container" in kinds else "none")

    def points(self, way: Way) -> list[ObservedPoint]:
        """Both tap points of a way, as the run's record has them."""
        return [
            ObservedPoint(
                target=end.interface.target.text,
                interface=end.interface.name,
                at=end.at,
                kind=end.interface.words,
                namespace=end.interface.place.words,
                inode=end.interface.inode,
                stamped=end.stamped(),
            )
            for end in way
        ]

    def xdp(self) -> Mapping[str, Xdp]:
        """The XDP programs before the stamps of packets that arrive, by the interfaces' targets."""
        found = {}
        for one in {end.interface for way in self.ways for end in way if end.at == "arrival"}:
            with contextlib.suppress(TailtapError):  # an interface that is gone: the taps tell
                found[one.target.text] = one.inside(xdp_of)
        return found


def prepare(asked: Asked) -> Prepared:
    """Find the interfaces, look at their packets, and find who serves them; changes nothing.

    Raises `InputError` where an interface is not there or packets cannot be told apart, and
    `MachineError` when this machine cannot stamp or trace.
    """
    require_root()
    require_kernel_clock()
    if asked.both and asked.egress is None:
        raise InputError("--both is for two interfaces: one has requests and their answers")
    came = look_at(asked.ingress)
    left = came if asked.egress is None else look_at(asked.egress)
    if left is not came and (left.inode, left.index) == (came.inode, came.index):
        raise InputError(
            f"{asked.ingress.text} and {left.target.text} are one interface: name it once, and its "
            "requests and answers are observed"
        )
    looked = next(unlooked(asked, came, left), None) or look(asked, came, left)
    ways = [looked.way]
    if asked.both:
        ways.append(back_of(looked.way))
    serving = _serving(asked, came, left, looked)
    return Prepared(
        asked=asked,
        ways=ways,
        key=looked.key,
        match=looked.match,
        serving=serving,
        spare=spare_cpu(os.sched_getaffinity(0), serving.cpus),
        looked=looked,
    )


def _serving(asked: Asked, came: Interface, left: Interface, looked: Looked) -> Serving:
    """Who serves, as it was said, or else as it was found."""
    is_behind = [end.at for end in looked.way] == ["egress", "arrival"]
    found = serving_of(came, left, looked.seen, is_behind=is_behind)
    cpus = sorted(asked.cpus or found.cpus)
    if missing := set(cpus) - usable():
        raise InputError(f"there is no CPU {min(missing)} here").at("--cpus")
    servers, rows, said = list(found.servers), list(found.rows), list(found.found)
    if asked.served:
        servers = list(asked.served)
        rows = list(_said(asked, cpus))
        said.append("by what packets are served was told by --served")
    if asked.cpus:
        said.append("where packets are served was told by --cpus")
        for row in rows:
            row.cpus = cpus
        servers = [_on(one, cpus) for one in servers]
    unknown = [] if asked.cpus and asked.served else list(found.unknown)
    return Serving(
        servers=servers,
        rows=rows,
        cpus=cpus,
        found=said,
        unknown=unknown,
        networks=found.networks,
        cores=len(cpus) if asked.cpus else found.cores,
    )


def _said(asked: Asked, cpus: Sequence[int]) -> Iterator[ObservedServer]:
    for one in asked.served:
        threads = {str(pid): "" for pid in one.served.pids}
        yield ObservedServer(by=one.served.by, cpus=list(one.cpus or cpus), threads=threads)


def _on(server: Server, cpus: Sequence[int]) -> Server:
    """A server of several, on other CPUs; where it is the only one it is on all that are traced."""
    return replace(server, cpus=cpus) if server.cpus else server
