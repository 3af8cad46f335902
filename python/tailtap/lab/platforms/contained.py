"""What platforms that are containers have in common, whatever program runs these.

A container shares this machine's kernel. Its ports, links of the lab or network cards, are moved
into its network namespace, as the papers do; its memory and CPUs are limited by control groups of
the version that the experiment chooses, and everything that is set is read back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from tailtap.base.errors import Check, Findings, MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.proc import ALLOWED, status
from tailtap.base.schema import Size, Written
from tailtap.base.units import format_size, format_time, list_cpus, parse_cpus
from tailtap.host.changes.resource import Resource
from tailtap.host.containers import cgroups
from tailtap.host.containers.container import Contained, Limit, Spec
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import Bundle, Runc
from tailtap.host.containers.podman import Pod, check_reference
from tailtap.host.facts import machine as machine_facts
from tailtap.host.facts.needs import missing_capabilities
from tailtap.lab.platforms.bare_metal import BareMetal
from tailtap.lab.platforms.boot import KernelOptions
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.platforms.roots import ROOTS, FolderRoot, ImageRoot, Root
from tailtap.lab.topology.graph import NodeKind
from tailtap.lab.topology.graphs import DUT, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import BUILT_IN, Traits
from tailtap.records.record import as_json
from tailtap.records.run import Image
from tailtap.remote.local import ContainerHost, ImageHost

PROBE_CPU = 0
MIN_MEMORY = 32 * 2**20
"""With less memory than this, the kernel kills the commands that set up a forwarder."""
PAGE = 4096
"""The kernel rounds limits of memory to pages, of at most this size where it matters."""
PARTITIONS = ("isolated", "root")
"""Kinds of partitions of CPUs, the better one first; Documentation/admin-guide/cgroup-v2.rst."""


class ContainedOptions(KernelOptions):
    """What limits a container, and which files it has."""

    roots: ClassVar[Sequence[str]] = ("host",)
    """The names of root file systems that it may have."""

    root: Annotated[str, Written("`host`, `debian` or a folder")] | None = Field(
        default=None,
        description="The container's root file system: host is this machine's own, the default; "
        "debian, of `container` only, is one with systemd, which the first run makes; an "
        "absolute path is a folder of your own. None is written to.",
        examples=["debian", "/srv/firewall"],
    )
    image: Annotated[str, AfterValidator(check_reference)] | None = Field(
        default=None,
        description="An image with the container's files: the name of one that Podman has, or an "
        "archive, as oci-archive:/PATH or docker-archive:/PATH. Forwarders external "
        "and server run its command in it.",
        examples=["localhost/firewall:2", "oci-archive:/srv/firewall.tar"],
    )

    @field_validator("root")
    @classmethod
    def _root_is_known(cls, text: str | None) -> str | None:
        if text is not None and text not in cls.roots and not text.startswith("/"):
            known = ", ".join(cls.roots)
            raise ValueError(f"{text!r}: write {known}, or the absolute path of a folder")
        return text

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.root is not None and self.image is not None:
            raise ValueError("dut.root and dut.image both have the container's files: give one")
        return self

    @property
    def has_own_files(self) -> bool:
        """Whether it has none of this machine's files."""
        return self.image is not None or (self.root or "").startswith("/")

    memory: Size | None = Field(
        default=None,
        description="How much memory the container may use, limited by a control group. By "
        "default there is no limit.",
        examples=["512 MiB"],
    )
    cgroup: Literal[1, 2] | None = Field(
        default=None,
        description="The version of control groups that limits the container, for which a "
        "testbed's host boots. By default the version that has the controllers.",
        examples=[2],
    )


class LxcOptions(ContainedOptions):
    """The same; LXC runs an init with services as well."""

    roots: ClassVar[Sequence[str]] = tuple(ROOTS)


@dataclass(eq=False)
class ContainerPlatform(BareMetal):
    """A container with a root file system of its own, limited to the DuT's CPUs."""

    name: str
    engine: type[Contained]
    packages: str
    """Of Debian, without which none can be started."""
    summary: str
    documentation: str
    Options: type[BaseModel] = ContainedOptions
    traits: Traits = BUILT_IN["container"]
    ports_in: NodeKind | None = "container"

    def root(self, options: ContainedOptions) -> tuple[str, Root]:
        """The container's root file system, and what it is called in the experiment file."""
        if options.image is not None:
            return "image", ImageRoot(options.image)
        name = options.root or "host"
        return (name, ROOTS[name]) if name in ROOTS else (name, FolderRoot(Path(name)))

    def diagnose(self) -> Iterator[Check]:
        area, name = "platforms", self.name
        if missing_capabilities():
            yield Check(area, name, "untested", "only root can try it", "run it with sudo")
            return
        try:
            self.engine.require()
            spec = DutSpec((PROBE_CPU,), ContainedOptions())
            with Lab(smallest(self.ports_in, spec.cpus)) as lab:
                lab.add({DUT: self.resources(lab.name_of(DUT), spec, ())})
                [made] = self.start(lab, [spec])
        except MachineError as error:
            remedy = f"apt-get install {self.packages}, on a kernel with cpuset control groups"
            yield Check(area, name, "missing", str(error.but(remedy="")), remedy)
            return
        version = made.facts["cgroup"]["cpuset"]["version"]
        started = format_time(round(made.facts["start_ns"], -6))
        found = f"one was started in {started}, limited by control groups of version {version}"
        yield Check(area, name, "ok", found)

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        super().foresee(spec, cards, programs, findings)
        findings.ask(self.engine.require)
        _, root = self.root(spec.options)
        before = len(findings.problems)
        root.foresee(programs, findings)
        if len(findings.problems) == before:
            own = findings.ask(root.own, "tt", self.engine)
            if own is not None:
                findings.ask(own.require_enterable)
        findings.ask(_Limits, spec, root)

    def resources(self, name: str, spec: DutSpec[Any], cards: Sequence[str]) -> Sequence[Resource]:
        _, root = self.root(spec.options)
        init = root.init or self.engine.init
        limits = _Limits(spec, root).settings()
        made = Spec(name, root.lower(), init, limits, root.shared(), root.files())
        return [self.engine(name, made)]

    def start(self, lab: Lab, specs: Sequence[DutSpec[Any]]) -> Sequence[Dut]:
        return [self._started(lab, spec) for spec in specs]

    def _started(self, lab: Lab, spec: DutSpec[Any]) -> Dut:
        name = lab.name_of(spec.node)
        kind, root = self.root(spec.options)
        container = self.engine(name)
        pid = container.pid()
        applied = _Limits(spec, root).applied(container.group)
        own = root.own(name, self.engine)
        host = (
            ImageHost(name)
            if own is not None
            else ContainerHost(name, container.inside(), spec.cpus)
        )
        root.wait_until_ready(host)
        facts = {
            "name": name,
            self.engine.program.removesuffix("-start"): self.engine.version(),
            "root": kind,
            **({"image": _told(own.image)} if own is not None and own.image else {}),
            "start_ns": lab.making_ns(spec.node),
            "cgroup": applied,
            "init_cpus": status(pid).get(ALLOWED),
            **lab.facts(),
        }
        return Dut(
            host,
            lab.passes(spec.node),
            spec.cpus,
            facts,
            node=spec.node,
            own=own,
            group=cgroups.counted(container.group),
        )


LXC = ContainerPlatform(
    "container",
    Container,
    "lxc",
    "A container of LXC, which shares this machine's kernel.",
    "Its ports are moved into its network namespace. Control groups limit its memory and CPUs; "
    "`platform` in run.json has what they say. Needs the Debian package lxc, and for "
    "`root: debian` mmdebstrap.",
    LxcOptions,
)
CRUN = ContainerPlatform(
    "crun",
    Bundle,
    "crun",
    "A container that crun runs, an OCI runtime (written in C; Podman runs it on Debian).",
    "It has this machine's files, and all capabilities; the rest is as with `container`. Needs the "
    "Debian package crun.",
    traits=BUILT_IN["crun"],
)
RUNC = ContainerPlatform(
    "runc",
    Runc,
    "runc",
    "A container that runc runs, an OCI runtime (the runtime of Docker).",
    "It has this machine's files, and all capabilities; the rest is as with `container`. Needs the "
    "Debian package runc.",
    traits=BUILT_IN["runc"],
)
PODMAN = ContainerPlatform(
    "podman",
    Pod,
    "podman crun",
    "A container of Podman, privileged, which crun or runc runs for it.",
    "It has this machine's files in place of an image, and no network of Podman's; the rest is as "
    "with `container`. Podman keeps all it needs in the container's own folder. Needs the Debian "
    "packages podman and crun.",
    traits=BUILT_IN["podman"],
)


def _told(image: Image) -> dict[str, Any]:
    """The image in the run's record, where what may be secret has no place."""
    return {key: value for key, value in as_json(image).items() if key != "environment"}


class _Limits:
    def __init__(self, spec: DutSpec[Any], root: Root) -> None:
        self._cpus = tuple(sorted({*spec.cpus, *root.service_cpus}))
        # A partition's CPUs are taken from everybody else.
        self._alone = spec.alone and not root.service_cpus
        self._memory = spec.options.memory
        self._cpuset = cgroups.require("cpuset", spec.options.cgroup)
        self._memories: cgroups.Hierarchy | None = None
        if spec.options.memory is not None:
            _require_memory(spec.options.memory)
            self._memories = cgroups.require("memory", spec.options.cgroup)

    def settings(self) -> list[Limit]:
        settings = [Limit(self._cpuset.version, "cpuset.cpus", list_cpus(self._cpus))]
        if self._cpuset.version == 1:
            settings.append(Limit(1, "cpuset.sched_load_balance", "0"))
        if self._memories is not None:
            file = _memory_file(self._memories)
            settings.append(Limit(self._memories.version, file, str(self._memory)))
        return settings

    def applied(self, name: str) -> dict[str, Any]:
        """Each limit as the kernel reports it. Raises `MachineError` when it is another."""
        group = self._cpuset.path / name
        files: dict[str, str | None] = {}
        if self._cpuset.version == 2 and self._alone:
            files["cpuset.cpus.partition"] = _partition(group)
        names = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.mems")
        for file in (*names, "cpuset.sched_load_balance"):
            content = read_text(group / file)
            if content is not None:
                files[file] = content
        if parse_cpus(files.get("cpuset.cpus") or "") != self._cpus:
            raise MachineError(
                f"the container should be limited to CPUs {list_cpus(self._cpus)}, but "
                f"{group}/cpuset.cpus says {files.get('cpuset.cpus') or 'nothing'}"
            )
        facts: dict[str, Any] = {
            "cpuset": {"version": self._cpuset.version, "path": str(group), **files}
        }
        if self._cpuset.version == 1:
            # Its root decides: while that balances, it balances over all CPUs; cpuset(7).
            facts["cpuset"]["root_sched_load_balance"] = read_text(
                self._cpuset.path / "cpuset.sched_load_balance"
            )
        if self._memories is not None:
            facts["memory"] = self._applied_memory(self._memories, name)
        return facts

    def _applied_memory(self, hierarchy: cgroups.Hierarchy, name: str) -> dict[str, Any]:
        assert self._memory is not None
        group, file = hierarchy.path / name, _memory_file(hierarchy)
        said = read_text(group / file)
        if said is None or not said.isdigit() or abs(int(said) - self._memory) >= PAGE:
            raise MachineError(
                f"the container should be limited to {self._memory} bytes of memory, but "
                f"{group}/{file} says {said or 'nothing'}"
            )
        return {
            "version": hierarchy.version,
            "path": str(group),
            file: int(said),
        }


def _memory_file(hierarchy: cgroups.Hierarchy) -> str:
    return "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"


def _partition(group: Path) -> str | None:
    """Make the group's CPUs a scheduling domain of their own, as far as this kernel does it.

    What the kernel says of it then; None for a kernel without partitions (before 5.0).
    """
    file = group / "cpuset.cpus.partition"
    said = read_text(file)
    if said is None:
        return None
    for kind in PARTITIONS:
        with contextlib.suppress(OSError):
            set_value(file, kind)
            said = read_text(file)
            if said == kind:
                return said
    with contextlib.suppress(OSError):
        set_value(file, "member")
    return said


def _require_memory(wanted: int) -> None:
    if wanted < MIN_MEMORY:
        raise MachineError(
            f"dut.memory: {format_size(wanted)} is too little for a container: give it "
            f"{format_size(MIN_MEMORY)} or more"
        )
    free = machine_facts.memory("MemAvailable")
    if free is not None and wanted > free:
        raise MachineError(
            f"dut.memory: {format_size(wanted)} is wanted, and this machine has "
            f"{format_size(free)} free: take less"
        )
