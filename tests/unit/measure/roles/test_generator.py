"""What the role that sends says of its machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recorded_machines import unpacked

from tailtap.experiment.model import Experiment
from tailtap.host.changes.journal import boot_id
from tailtap.host.knobs.tree import Tree
from tailtap.lab.topology.graphs import smallest
from tailtap.measure.roles import Workbench
from tailtap.measure.roles.foresee import judged_as_generator
from tailtap.measure.roles.generator import LoadGenerator
from tailtap.records.record import as_json
from tailtap.remote.session import RolePlan


def experiment(**traffic: Any) -> Experiment:
    return Experiment.model_validate({"name": "a", "traffic": {"cpu": 3, **traffic}})


@pytest.fixture
def generator() -> LoadGenerator:
    graph = smallest()
    lab = SimpleNamespace(graph=graph, host=lambda node: None)
    return LoadGenerator(
        Workbench(cast(Any, lab), experiment(cpu=0), None), RolePlan(flows={"forward": ""})
    )


def described(generator: LoadGenerator, boot: str | None) -> Any:
    """Its machine, for a DuT whose machine has this boot."""
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
    both = judged_as_generator(experiment(bidirectional=True, reverse_cpu=4), tree)
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
