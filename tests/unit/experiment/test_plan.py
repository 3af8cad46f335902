"""The plan: order, numbers, names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError
from tailtap.base.files import slugify
from tailtap.experiment.plan import make_plan, plan_record
from tailtap.experiment.reading import read_experiment
from tailtap.records.record import as_json

TEXT = """\
name: An experiment
traffic: {}
vary:
  dut.platform: [wire, bare-metal]
  traffic.rate: [10 kpkt/s, 0.5 Mpkt/s]
repeat: 2
"""


def test_repeats_are_outermost_and_the_last_variable_turns_fastest(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT)
    plan = make_plan(read_experiment(path))
    assert [run.slug for run in plan] == [
        "001-wire-10kpkt-s-r1",
        "002-wire-0.5mpkt-s-r1",
        "003-bare-metal-10kpkt-s-r1",
        "004-bare-metal-0.5mpkt-s-r1",
        "005-wire-10kpkt-s-r2",
        "006-wire-0.5mpkt-s-r2",
        "007-bare-metal-10kpkt-s-r2",
        "008-bare-metal-0.5mpkt-s-r2",
    ]
    assert [run.repeat for run in plan] == [1] * 4 + [2] * 4
    assert plan[1].variables == {"dut.platform": "wire", "traffic.rate": "0.5 Mpkt/s"}
    assert plan[1].experiment.traffic.rate == 500_000
    assert make_plan(read_experiment(path)) == plan
    content = as_json(plan_record("An experiment", plan))
    assert content["schema"] == "tailtap.plan/1"
    assert content["runs"][2]["parameters"]["dut"]["platform"] == "bare-metal"


def test_a_plan_without_variables_is_named_after_the_experiment(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: Ünder Test/1\ntraffic: {}\n")
    assert [run.slug for run in make_plan(read_experiment(path))] == ["001-nder-test-1"]


def test_values_of_every_type_become_names(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: a\ntraffic: {}\ndut: {forwarder: fault}\nvary:\n  dut.cpus: [[0, 1]]\n"
        "  dut.options: [{drop: [1, 2]}]\n"
    )
    assert [run.slug for run in make_plan(read_experiment(path))] == ["001-0-1-drop-1-2"]


def test_long_values_do_not_make_long_names(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    ids = list(range(1000))
    path.write_text(
        "name: a\ntraffic: {}\ndut: {forwarder: fault}\nvary:\n"
        f"  dut.options.drop: [{ids}, {ids[1:]}]\n"
    )
    slugs = [run.slug for run in make_plan(read_experiment(path))]
    assert len(set(slugs)) == 2
    assert all(len(slug) <= 100 for slug in slugs)


def test_a_long_value_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: a\ntraffic: {}\ncases:\n"
        "  - {dut.boot: 'isolcpus={cpus} rcu_nocbs={cpus} irqaffinity=0 nosmt', dut.cpus: [1]}\n"
    )
    [run] = make_plan(read_experiment(path))
    assert run.slug == "001-isolcpus-cpus-rcu-nocbs-cpus-irqaffinity-1"


@pytest.mark.parametrize(
    ("text", "slug"),
    [("10 kpkt/s", "10kpkt-s"), ("bare-metal", "bare-metal"), ("../..", ""), ("64 B", "64b")],
)
def test_slugify(text: str, slug: str) -> None:
    assert slugify(text) == slug


@given(st.text())
def test_a_slug_is_a_safe_name(text: str) -> None:
    slug = slugify(text)
    assert re.fullmatch(r"[a-z0-9.-]*", slug)
    assert not slug.startswith(".")


def test_the_other_direction_is_a_run_with_the_next_number(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: both\ntraffic: {bidirectional: true}\n"
        "vary: {traffic.rate: [10 kpkt/s, 20 kpkt/s], traffic.bidirectional: [true, false]}\n"
    )
    plan = make_plan(read_experiment(path))
    assert [(run.number, run.slug) for run in plan] == [
        (1, "001-10kpkt-s-true"),
        (3, "003-10kpkt-s-false"),
        (4, "004-20kpkt-s-true"),
        (6, "006-20kpkt-s-false"),
    ]
    [back] = plan[2].together
    assert (back.number, back.slug) == (5, "005-20kpkt-s-true-reverse")
    assert plan[2].variables["direction"] == "forward"
    assert back.variables == {**plan[2].variables, "direction": "reverse"}
    assert not back.together
    assert not plan[1].together and "direction" not in plan[1].variables


@pytest.mark.parametrize(
    "flows",
    [
        "{src: 10.1.0.1-10.1.0.3, dst: 10.2.0.1, sport: 1000-1009, dport: 53}",
        "{dst: 10.2.0.1, sport: 1000-1009}",
        "3",
        "1, ip: 6, size: 128 B",
    ],
)
def test_the_other_direction_has_the_answers_to_the_flows(tmp_path: Path, flows: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        f"name: both\ntraffic: {{bidirectional: true, reverse_cpu: 1, flows: {flows}}}\n"
    )
    [(_, experiment)] = read_experiment(path).combinations
    there, back = experiment.traffic.ranges(), experiment.traffic.reversed().ranges()
    assert back == there._replace(
        source=there.destination,
        destination=there.source,
        source_ports=there.destination_ports,
        destination_ports=there.source_ports,
    )
    assert experiment.traffic.reversed().cpu == 1


def test_a_case_has_a_name(tmp_path: Path) -> None:
    """It stands for values that a name of a run has no room for, and is no key of the DuT."""
    boot = "isolcpus={cpus} rcu_nocbs={cpus} irqaffinity=0 nosoftlockup"
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: e\ntraffic: {cpu: 0}\ndut: {cpus: [1]}\nvary: {traffic.rate: [1 kpkt/s]}\n"
        "question: Which is later?\n"
        "cases:\n  - {case: plain, dut.boot: '', dut.kernel: plain}\n"
        f"  - {{dut.boot: '{boot}', dut.kernel: rt, case: tuned}}\n"
    )
    checked = read_experiment(path)
    plan = make_plan(checked)
    assert [run.slug for run in plan] == ["001-plain-1kpkt-s", "002-tuned-rt-1kpkt-s"]
    assert [run.variables["case"] for run in plan] == ["plain", "tuned"]
    assert [run.experiment.dut.settings.boot for run in plan] == ["", boot]  # type: ignore[attr-defined]
    asked = plan[0].experiment.parameters()
    assert not {"case", "question"} & set(asked)
    for wrong in ("case: ''", "case: [a]"):
        path.write_text(
            f"name: e\ntraffic: {{cpu: 0}}\ncases:\n  - {{{wrong}, traffic.rate: 1 kpkt/s}}\n"
        )
        with pytest.raises(InputError, match=r"e\.yaml:4: cases\[0\]\.case: write the name"):
            read_experiment(path)
    path.write_text("name: e\ntraffic: {cpu: 0}\nvary: {case: [a]}\n")
    with pytest.raises(InputError, match="only a path into"):
        read_experiment(path)
