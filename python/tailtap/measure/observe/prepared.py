"""An observation that can begin: what is stamped, and who serves what passes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailtap.base.errors import InputError, TailtapError
from tailtap.host.cpu.cpus import usable
from tailtap.host.facts.needs import require_root
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.lab.instruments.tracer import spare_cpu
from tailtap.measure.observe.interfaces import Interface, Xdp, look_at, xdp_of, xdp_words
from tailtap.measure.observe.look import (
    PACKETS,
    TRANSACTIONS,
    UNHASHED,
    Looked,
    Options,
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

    options: Options
    ways: Sequence[Way]
    """Where packets are stamped: the way there and, with ``both``, the way back."""
    serving: Serving
    spare: int | None
    """A CPU that serves nothing, for whatever we do ourselves; None: there is none."""
    looked: Looked

    @property
    def hashed(self) -> bool:
        """Whether a hash of each packet is enough, so that no byte of it is kept."""
        return self.looked.match == PACKETS and self.looked.key not in UNHASHED

    @property
    def traced(self) -> bool:
        """Whether the cores that serve are traced: what they did is joined with marks alone."""
        marked = self.hashed or self.looked.match == TRANSACTIONS
        return self.options.trace != "none" and marked and bool(self.serving.cpus)

    @property
    def traits(self) -> Traits:
        """What is known of what the device runs on."""
        kinds = {end.interface.place.virtualization for way in self.ways for end in way}
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

    def sentences(self) -> list[str]:
        """What was found, before it begins."""
        requests = self.looked.match == TRANSACTIONS
        by = "requests and their answers" if requests else f"matched by {self.looked.key}"
        said = []
        if self.looked.way[0].interface.target == self.options.egress:
            said.append("packets pass the other way only: so that is what is observed")
        for before, behind in map(self.points, self.ways):
            said.append(
                f"observing {before.target} ({before.kind}, {before.at}) to {behind.target} "
                f"({behind.kind}, {behind.at}), {by}"
            )
        for target, xdp in self.xdp().items():
            if xdp.programs:
                ran = xdp_words(xdp.programs, target)
                said.append(f"{ran}: what it drops or redirects is not seen there")
        unknown = (f"not known: {one}" for one in self.serving.unknown)
        return [*said, *self.serving.found, *unknown, "SIGINT (Ctrl-C) ends it"]

    def xdp(self) -> Mapping[str, Xdp]:
        """The XDP programs before the stamps of packets that arrive, by the interfaces' targets."""
        found = {}
        for one in {end.interface for way in self.ways for end in way if end.at == "arrival"}:
            with contextlib.suppress(TailtapError):  # an interface that is gone: the taps tell
                found[one.target.text] = one.inside(xdp_of)
        return found


def prepare(options: Options) -> Prepared:
    """Find the interfaces, look at their packets, and find who serves them; changes nothing.

    Raises `InputError` where an interface is not there or packets cannot be told apart, and
    `MachineError` when this machine cannot stamp or trace.
    """
    require_root()
    require_kernel_clock()
    if options.both and options.egress is None:
        raise InputError("--both is for two interfaces: one has requests and their answers")
    came = look_at(options.ingress)
    left = came if options.egress is None else look_at(options.egress)
    if left is not came and (left.inode, left.index) == (came.inode, came.index):
        raise InputError(
            f"{options.ingress.text} and {left.target.text} are one interface: name it once, and "
            "its requests and answers are observed"
        )
    looked = next(unlooked(options, came, left), None) or look(options, came, left)
    ways = [looked.way]
    if options.both:
        ways.append(back_of(looked.way))
    serving = _serving(options, came, left, looked)
    return Prepared(
        options=options,
        ways=ways,
        serving=serving,
        spare=spare_cpu(os.sched_getaffinity(0), serving.cpus),
        looked=looked,
    )


def _serving(options: Options, came: Interface, left: Interface, looked: Looked) -> Serving:
    is_behind = [end.at for end in looked.way] == ["egress", "arrival"]
    found = serving_of(came, left, looked.seen, is_behind=is_behind)
    cpus = sorted(options.cpus or found.cpus)
    if missing := set(cpus) - usable():
        raise InputError(f"there is no CPU {min(missing)} here").at("--cpus")
    servers, rows, said = list(found.servers), list(found.rows), list(found.found)
    if options.served:
        servers = list(options.served)
        rows = list(_said(options, cpus))
        said.append("by what packets are served was told by --served")
    if options.cpus:
        said.append("where packets are served was told by --cpus")
        for row in rows:
            row.cpus = cpus
        # Where there is but one server, it is on all CPUs that are traced.
        servers = [replace(one, cpus=cpus) if one.cpus else one for one in servers]
    unknown = [] if options.cpus and options.served else list(found.unknown)
    return Serving(
        servers=servers,
        rows=rows,
        cpus=cpus,
        found=said,
        unknown=unknown,
        networks=found.networks,
        cores=len(cpus) if options.cpus else found.cores,
    )


def _said(options: Options, cpus: Sequence[int]) -> Iterator[ObservedServer]:
    for one in options.served:
        threads = {str(pid): "" for pid in one.served.pids}
        yield ObservedServer(by=one.served.by, cpus=list(one.cpus or cpus), threads=threads)
