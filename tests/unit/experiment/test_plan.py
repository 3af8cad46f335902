"""The plan: order, numbers, names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from experiment_files import check, complaint
from hypothesis import example, given
from hypothesis import strategies as st

from tailtap.base.files import slugify
from tailtap.experiment.plan import make_plan, plan_record
from tailtap.records.record import as_json
from tests.unit.experiment.test_mistakes import CARDS
from tests.unit.experiment.test_refused import PLATFORMS

TEXT = """\
name: An experiment
traffic: {}
vary:
  dut.platform: [wire, bare-metal]
  traffic.rate: [10 kpkt/s, 0.5 Mpkt/s]
repeat: 2
"""
FAULT = "name: a\ntraffic: {}\ndut: {forwarder: fault}\nvary:\n  "
BOOT = "isolcpus={cpus} rcu_nocbs={cpus} irqaffinity=0 nosmt"
IDS = list(range(1000))


def test_repeats_are_outermost_and_the_last_variable_turns_fastest(tmp_path: Path) -> None:
    plan = make_plan(check(tmp_path, TEXT))
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
    assert make_plan(check(tmp_path, TEXT)) == plan
    content = as_json(plan_record("An experiment", plan))
    assert content["schema"] == "tailtap.plan/1"
    assert content["runs"][2]["parameters"]["dut"]["platform"] == "bare-metal"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("name: Ünder Test/1\ntraffic: {}\n", "001-nder-test-1"),
        (f"{FAULT}dut.cpus: [[0, 1]]\n  dut.options: [{{drop: [1, 2]}}]\n", "001-0-1-drop-1-2"),
        # A long value does not hide the others.
        (f"name: a\ntraffic: {{}}\ncases:\n  - {{dut.boot: '{BOOT}', dut.cpus: [1]}}\n",
         "001-isolcpus-cpus-rcu-nocbs-cpus-irqaffinity-1"),
    ],
)  # fmt: skip
def test_values_of_every_type_become_names(tmp_path: Path, text: str, slug: str) -> None:
    assert [run.slug for run in make_plan(check(tmp_path, text))] == [slug]


def test_long_values_do_not_make_long_names(tmp_path: Path) -> None:
    plan = make_plan(check(tmp_path, f"{FAULT}dut.options.drop: [{IDS}, {IDS[1:]}]\n"))
    assert len({run.slug for run in plan}) == 2
    assert all(len(run.slug) <= 100 for run in plan)


@given(st.text())
@example("10 kpkt/s")
@example("../..")
def test_a_slug_is_a_safe_name(text: str) -> None:
    slug = slugify(text)
    assert re.fullmatch(r"[a-z0-9.-]*", slug)
    assert not slug.startswith(".")


def test_the_other_direction_is_a_run_with_the_next_number(tmp_path: Path) -> None:
    text = (
        "name: both\ntraffic: {bidirectional: true}\n"
        "vary: {traffic.rate: [10 kpkt/s, 20 kpkt/s], traffic.bidirectional: [true, false]}\n"
    )
    plan = make_plan(check(tmp_path, text))
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
    text = f"name: both\ntraffic: {{bidirectional: true, reverse_cpu: 1, flows: {flows}}}\n"
    [(_, experiment)] = check(tmp_path, text).combinations
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
    text = (
        "name: e\ntraffic: {cpu: 0}\ndut: {cpus: [1]}\nvary: {traffic.rate: [1 kpkt/s]}\n"
        "question: Which is later?\n"
        "cases:\n  - {case: plain, dut.boot: '', dut.kernel: plain}\n"
        f"  - {{dut.boot: '{BOOT}', dut.kernel: rt, case: tuned}}\n"
    )
    plan = make_plan(check(tmp_path, text))
    assert [run.slug for run in plan] == ["001-plain-1kpkt-s", "002-tuned-rt-1kpkt-s"]
    assert [run.variables["case"] for run in plan] == ["plain", "tuned"]
    assert [run.experiment.dut.settings.boot for run in plan] == ["", BOOT]  # type: ignore[attr-defined]
    assert not {"case", "question"} & set(plan[0].experiment.parameters())


def chosen(path: Path, text: str, *overrides: str) -> list[tuple[object, ...]]:
    return [tuple(values.values()) for values, _ in check(path, text, *overrides).combinations]


def test_keys_of_a_case_change_together(tmp_path: Path) -> None:
    checked = check(tmp_path, CARDS)
    assert [
        (one.dut.given("ports"), one.tap.ports, one.traffic.rate) for _, one in checked.combinations
    ] == [
        (("a0", "a1"), ("b0", "b1"), 10_000),
        (("a0", "a1"), ("b0", "b1"), 20_000),
        (("c0", "c1"), ("d0", "d1"), 10_000),
        (("c0", "c1"), ("d0", "d1"), 20_000),
    ]
    plan = make_plan(checked)
    assert [run.slug for run in plan] == [
        "001-a0-a1-b0-b1-10kpkt-s",
        "002-a0-a1-b0-b1-20kpkt-s",
        "003-c0-c1-d0-d1-10kpkt-s",
        "004-c0-c1-d0-d1-20kpkt-s",
    ]
    # The second case is written in another order, which changes no name.
    assert list(plan[2].variables.items()) == [
        ("dut.ports", ["c0", "c1"]),
        ("tap.ports", ["d0", "d1"]),
        ("traffic.rate", "10 kpkt/s"),
    ]
    assert {"cases", "exclude", "differs", "vary"}.isdisjoint(plan[0].row().parameters.whole)


def test_cases_alone_are_enough(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\ncases: [{traffic.cpu: 0, dut.cpus: [1]}, "
    text += "{traffic.cpu: 1, dut.cpus: [0]}]\n"
    assert chosen(tmp_path, text) == [(0, [1]), (1, [0])]
    assert chosen(tmp_path, text, "cases=[]") == [()]
    assert chosen(tmp_path, text, "cases=[{traffic.cpu: 7}]") == [(7,)]


def test_a_scale_may_have_other_cases(tmp_path: Path) -> None:
    text = CARDS + "scales:\n  large: {cases: [], traffic.duration: 1 s, tap.clock: hardware}\n"
    large = check(tmp_path, text, "scale=large").combinations
    assert [(one.dut.given("ports"), one.tap.clock) for _, one in large] == [(None, "hardware")] * 2


def test_what_matches_all_of_an_exclusion_is_left_out(tmp_path: Path) -> None:
    assert chosen(tmp_path, PLATFORMS + "  - {dut.platform: vm, dut.kernel: rt}\n") == [
        ("bare-metal", "vanilla"),
        ("bare-metal", "rt"),
        ("container", "vanilla"),
        ("container", "rt"),
        ("vm", "vanilla"),
    ]
    several = PLATFORMS + "  - {dut.platform: [vm, container], dut.kernel: rt}\n"
    several += "  - dut.platform: bare-metal\n"
    plan = make_plan(check(tmp_path, several))
    assert [run.slug for run in plan] == ["001-container-vanilla", "002-vm-vanilla"]


def test_exclusions_reach_into_cases_and_values_that_are_lists(tmp_path: Path) -> None:
    text = CARDS + "exclude:\n  - {dut.ports: [a0, a1], traffic.rate: 20 kpkt/s}\n"
    text += "  - {tap.ports: [[d0, d1]], traffic.rate: 10 kpkt/s}\n"
    assert chosen(tmp_path, text) == [
        (["a0", "a1"], ["b0", "b1"], "10 kpkt/s"),
        (["c0", "c1"], ["d0", "d1"], "20 kpkt/s"),
    ]


def test_a_combination_that_cannot_be_may_be_left_out(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\nvary:\n  traffic.rate: [1 pkt/s, 1 kpkt/s]\n"
    text += "  traffic.duration: [2 s, 100 ms]\nevaluation: {trim: 1 ms}\n"
    assert "not a single packet fits" in complaint(tmp_path, text)
    text += "exclude: [{traffic.rate: 1 pkt/s, traffic.duration: 100 ms}]\n"
    assert len(check(tmp_path, text).combinations) == 3
