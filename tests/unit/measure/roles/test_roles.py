"""Roles: what a generator says of its machine, what is traced of a DuT, what all are asked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scratch_machine import unpacked

from tailtap.base.errors import InputError
from tailtap.experiment.model import Experiment
from tailtap.experiment.sections import Due, Event
from tailtap.host.cpu.cpus import Numa
from tailtap.host.facts.machine import boot_id
from tailtap.host.knobs.tree import Tree
from tailtap.lab.topology.graphs import smallest
from tailtap.measure.roles import Workbench
from tailtap.measure.roles.dut import Happenings
from tailtap.measure.roles.foresee import is_steered, judged_as_generator, packets_of, spare_of
from tailtap.measure.roles.generator import LoadGenerator
from tailtap.measure.roles.here import Here, HereSession
from tailtap.records.record import as_json
from tailtap.remote.session import RolePlan, Setup, Station
from tailtap.remote.stream import StreamStation


def experiment(dut: dict[str, Any] | None = None, **traffic: Any) -> Experiment:
    sent = {"rate": "10 kpkt/s", "duration": "1 s", **traffic}
    device = {"cpus": [1], **(dut or {})}
    return Experiment.model_validate({"name": "a", "traffic": sent, "dut": device})


@pytest.fixture
def generator() -> LoadGenerator:
    graph = smallest()
    lab = SimpleNamespace(graph=graph, host=lambda node: None)
    return LoadGenerator(
        Workbench(cast(Any, lab), experiment(cpu=0), None), RolePlan(flows={"forward": ""})
    )


def described(generator: LoadGenerator, boot: str | None) -> Any:
    return as_json(generator.requests()["describe"]({"boot_id": boot}))["station"]


def test_it_describes_its_machine_where_that_is_not_the_duts(generator: LoadGenerator) -> None:
    station = described(generator, "that of another")
    assert station["environment"]["topology"]["cores"]
    tuning = station["tuning"]
    assert (tuning["role"], tuning["before"], tuning["left"]) == ("generator", {}, {})
    assert tuning["cpus"] == "0"
    assert all(row["why"] and row["source"] for row in tuning["audit"].values())


def test_it_says_nothing_twice_of_one_machine(generator: LoadGenerator) -> None:
    here = boot_id()
    assert here is not None
    assert described(generator, here) is None
    # Who does not know its boot may be anywhere.
    assert described(generator, None) is not None


def test_its_machine_is_judged_for_the_cpus_of_all_generators(tmp_path: Path) -> None:
    tree = Tree(unpacked("intel-two-sockets", tmp_path))
    both = judged_as_generator(experiment(cpu=3, bidirectional=True, reverse_cpu=4), tree)
    assert both is not None
    assert (both.cpus, both.housekeeping) == ("3-4", "0-2,5-11")
    assert both.audit["governor"].answer == "not-met"
    assert both.audit["governor"].group == "frequency"
    # What is for devices alone does not apply.
    assert "host-halt-polling" not in both.audit


def test_a_machine_with_one_cpu_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "sys/devices/system/cpu/online"
    path.parent.mkdir(parents=True)
    path.write_text("0\n")
    assert judged_as_generator(experiment(cpu=0), Tree(tmp_path)) is None


@pytest.mark.parametrize(
    ("dut", "steered"),
    [
        ({"forwarder": "tc-mirred"}, True),
        ({"forwarder": "kernel-route"}, True),
        ({"forwarder": "kernel-route", "platform": "container"}, True),
        ({"forwarder": "kernel-route", "cpus": [1, 2]}, True),
        ({"forwarder": "tc-mirred", "cpus": [0, 1]}, False),  # the sender raises the softirq itself
        ({"forwarder": "xdp"}, False),  # drivers pass its packets on
        ({"forwarder": "fault"}, False),  # a program serves
        ({"forwarder": "tc-mirred", "irq": "none"}, False),  # wherever the kernel does it
        ({"forwarder": "tc-mirred", "napi": "threads"}, False),
        ({"forwarder": "tc-mirred", "line": 2}, False),  # one node raises the softirq of the next
        ({"forwarder": "kernel-route", "platform": "vm"}, False),  # its own kernel serves
    ],
)
def test_packets_are_steered_where_the_kernel_forwards_on_one_node(
    dut: dict[str, Any], steered: bool
) -> None:
    """By calls of other CPUs alone: not where a softirq is raised otherwise, or a thread serves."""
    asked = experiment(dut, cpu=0)
    assert is_steered(asked, asked.graph(), Numa.of({})) is steered


def test_a_spare_cpu_is_nobody_s() -> None:
    """Neither the generator's, nor the device's, nor a neighbour's."""
    asked = experiment({"forwarder": "tc-mirred"}, cpu=0)
    assert spare_of(asked, range(4)) == 3
    assert spare_of(asked, range(2)) is None
    assert packets_of(asked) >= 10_000


FAR = StreamStation([sys.executable, "-P", "-m", "tailtap.measure.roles.here"], "the far end")


@pytest.mark.parametrize("station", [Here(), FAR], ids=["here", "behind a stream"])
def test_an_experiment_with_a_kind_that_is_not_installed_is_refused(station: Station) -> None:
    dut = {"forwarder": "of-another-package"}
    with pytest.raises(InputError, match=r"dut\.forwarder: .*of-another-package") as caught:
        station.open(Setup(experiment={"name": "a", "dut": dut, "traffic": {}}))
    assert "\n" not in str(caught.value)


def test_a_question_may_come_with_anything() -> None:
    """No word of it is taken for a word of the session's own."""
    heard: list[object] = []

    def hear(content: dict[str, Any]) -> dict[str, Any]:
        heard.append(content)
        return content

    role: Any = SimpleNamespace(requests=lambda: {"probe": hear}, sources=lambda: [])
    said = {"seconds": 3, "request": "why", "content": {}}
    assert HereSession(role, "role").ask("probe", said) == said == heard[0]


def test_what_is_not_begun_when_packets_end_is_known() -> None:
    event = Event.model_validate({"at": "1 s", "run": "true"})
    events = [Due(10**15, event), Due(2 * 10**15, event)]
    happenings = Happenings(events, lambda where: (_ for _ in ()).throw(AssertionError(where)), 0)
    assert happenings.stop() == []
    assert happenings.missed == events
