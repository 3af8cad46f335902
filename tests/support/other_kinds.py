"""A package of somebody else: one kind of everything that other packages can add to tailtap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import asdict
from pydantic import BaseModel, Field

from tailtap.analysis.runs.run import Run
from tailtap.base.errors import Check, Findings
from tailtap.base.schema import Size, Strict
from tailtap.host.changes.resource import Resource, Value
from tailtap.lab.forwarders import Asked, Need, Serves, Setting
from tailtap.lab.forwarders.own import Forwarding
from tailtap.lab.generators.own import OwnGenerator
from tailtap.lab.instruments.taps.inline import InlineTap
from tailtap.lab.instruments.taps.kinds import Stamped
from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.bare_metal import BareMetal
from tailtap.lab.platforms.boot import KernelOptions
from tailtap.lab.topology.lab import Lab
from tailtap.records.datapath import GeneratorRecord
from tailtap.records.machine import Traits
from tailtap.remote import Host
from tailtap.remote.local import Process


class PodOptions(KernelOptions):
    """A key that no other platform has."""

    cache: Size = Field(
        default=2**20, description="How much cache the pod may use.", examples=["2 MiB"]
    )


class Pod(BareMetal):
    """Bare metal by another name."""

    summary = "A pod, which is a kind of container."
    documentation = "Nobody knows what is in it."
    traits = Traits(virtualization="container")
    Options: type[BaseModel] = PodOptions

    def diagnose(self) -> Iterator[Check]:
        yield Check("platforms", "pod", "ok", "pods grow here")

    def start(self, lab: Lab, specs: Sequence[DutSpec[Any]]) -> Sequence[Dut]:
        return [
            replace(made, facts={**made.facts, "cache": spec.options.cache})
            for made, spec in zip(super().start(lab, specs), specs, strict=True)
        ]


class RelayOptions(Strict):
    """An option that no other forwarder has."""

    lanes: int = Field(default=1, description="How many lanes it has.", examples=[2])


class Relay:
    """`tailtap forward` by another name."""

    summary = "A relay between the ports."
    documentation = "It has lanes."
    in_kernel = False
    routes = False
    serves: Serves = "pair"
    shares_cpus = False
    Options: type[BaseModel] = RelayOptions
    needs: Sequence[Need] = (Need("true", "install coreutils"),)

    def diagnose(self) -> Iterator[Check]:
        yield Check("forwarders", "relay", "ok", "relays")

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        findings.notes.append(f"a relay will run: {options!r}")

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Forwarding:
        arguments = [dut.ingress, dut.egress, "--cpu", str(dut.cpus[0])]
        return Forwarding.start("relay", dut, arguments)


class TrickleOptions(Strict):
    """An option that no other generator has."""

    drops: int = Field(default=1, description="How many drops there are.", examples=[3])


class Trickled(GeneratorRecord, kw_only=True):
    """What it says besides."""

    by: str


class Trickle(OwnGenerator):
    """Our own generator by another name."""

    def __init__(self) -> None:
        super().__init__("af_packet")
        self.summary = "A trickle of packets."
        self.documentation = "It is slow."
        self.Options = TrickleOptions

    def diagnose(self) -> Iterator[Check]:
        yield Check("generators", "trickle", "ok", "trickles")

    def result(self, processes: Sequence[Process]) -> Sequence[GeneratorRecord]:
        return [Trickled(**asdict(told), by="trickle") for told in super().result(processes)]


class Listener(InlineTap):
    """Our own tap by another name."""

    summary = "A listener on both sides."
    documentation = "It is all ears."

    def diagnose(self) -> Iterator[Check]:
        yield Check("taps", "listener", "ok", "listens")

    def start(
        self, host: Host, folder: Path, flows: Sequence[Stamped], *more: Any, **others: Any
    ) -> Process:
        for flow in flows:
            (folder / flow.folder / "listened").touch()
        return super().start(host, folder, flows, *more, **others)


class Lines:
    """A line for each run."""

    summary = "One line of text for each run."
    documentation = "It is short."
    address = False
    holds_packets = False

    def diagnose(self) -> Iterator[Check]:
        yield Check("exporters", "lines", "ok", "lines up")

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        path = Path(destination) / "lines.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{run.slug}\n" for run in runs))
        return [str(path)]


@dataclass(frozen=True)
class Flag(Resource):
    """A file that is there for as long as a measurement lasts."""

    kind: ClassVar[str] = "flag"

    path: str

    @property
    def label(self) -> str:
        return self.path

    def read(self) -> bool:
        return Path(self.path).exists()

    def plan(self) -> Value:
        return True

    def apply(self) -> None:
        Path(self.path).touch()

    def undo(self, old: Value, applied: Value = None) -> None:
        Path(self.path).unlink(missing_ok=True)
