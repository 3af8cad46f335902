"""Values that change together, combinations that are left out, and where both go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_files import check, complaint

from tailtap.experiment.plan import make_plan

CARDS = """\
name: cards
traffic: {}
cases:
  - {dut.ports: [a0, a1], tap.ports: [b0, b1]}
  - {tap.ports: [d0, d1], dut.ports: [c0, c1]}
vary:
  traffic.rate: [10 kpkt/s, 20 kpkt/s]
"""
PLATFORMS = """\
name: platforms
traffic: {}
vary:
  dut.platform: [bare-metal, container, vm]
  dut.kernel: [vanilla, rt]
exclude:
"""


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


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ("{traffic.cpu: 1}", ":3: cases: write a list of mappings from key paths to values, "),
        ("\n  - traffic.cpu", ":4: cases[0]: write a list of mappings from key paths to values, "),
        ("[{}]", ":3: cases[0]: write a list of mappings"),
        (
            "\n  - {traffic.cpu: 1}\n  - {traffic.cpu: 0, dut.cpus: [1]}",
            (":5: cases[1]: dut.cpus is missing in cases[0]: all cases name the same key paths"),
        ),
        (
            "\n  - {traffic.cpu: 0, dut.cpus: [1]}\n  - {traffic.cpu: 1}",
            (":5: cases[1]: dut.cpus is missing in cases[1]: all cases name the same key paths"),
        ),
        (
            "\n  - {dut.cpus: [1], traffic.cpu: 0}\n  - {traffic.cpu: 0, dut.cpus: [1]}",
            ":5: cases[1]: {'traffic.cpu': 0, 'dut.cpus': [1]} is in the list twice",
        ),
        (
            "\n  - repeat: 2",
            (
                ":4: cases[0].repeat: only a path into dut, traffic, tap, evaluation can vary, "
                "such as traffic.rate, and trace, interrupts"
            ),
        ),
        (
            "\n  - {dut.options: {}, dut.options.drop: [1]}",
            ":4: cases[0].dut.options.drop: dut.options varies as a whole already",
        ),
        (
            "\n  - traffic.rate: 1 kpkt/s\n  - traffic.rate: 10 kpps",
            ":5: cases[1].traffic.rate: '10 kpps' is not a packet rate",
        ),
        (
            "\n  - dut.ports: [a, b]",
            (
                ":4: cases[0].dut.ports: these are one end of two cables: name the cards "
                "at the other with tap.ports"
            ),
        ),
        (
            "\n  - {traffic.duration: 2 s}\n  - {traffic.duration: 1 s}\nevaluation: {trim: 1 s}",
            (
                ":6: evaluation.trim: a trim of 1 s leaves nothing of 1 s of traffic, with "
                "cases[1].traffic.duration (/e.yaml:5)"
            ),
        ),
    ],
)
def test_a_case_that_is_wrong_is_told_with_its_line(tmp_path: Path, cases: str, said: str) -> None:
    assert complaint(tmp_path, f"name: a\ntraffic: {{}}\ncases: {cases}\n").startswith(
        f"/e.yaml{said}"
    )


def test_nothing_varies_twice(tmp_path: Path) -> None:
    assert complaint(tmp_path, CARDS + "  tap.ports: [[b0, b1]]\n") == (
        "/e.yaml:8: vary.tap.ports: the cases vary it already (/e.yaml:4): leave one of them out"
    )
    text = "name: a\ntraffic: {}\ncases: [{dut.options: {}}]\nvary:\n  dut.options.drop: [[1]]\n"
    assert complaint(tmp_path, text) == (
        "/e.yaml:5: vary.dut.options.drop: dut.options varies as a whole already"
    )


def test_what_cases_replace_cannot_be_set_in_vain(tmp_path: Path) -> None:
    assert complaint(tmp_path, CARDS, "dut.ports=[x, y]") == (
        "--set 'dut.ports=[x, y]': dut.ports is varied by /e.yaml:3: set the list instead, "
        "--set 'cases=[…]'"
    )
    scaled = CARDS + "scales:\n  large: {tap.ports: [x, y]}\n"
    assert complaint(tmp_path, scaled) == (
        "/e.yaml:9: scales.large.tap.ports: tap.ports is varied by /e.yaml:3: set the list "
        "instead, as cases"
    )


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


@pytest.mark.parametrize(
    ("exclude", "said"),
    [
        (
            "  - {dut.platform: xen}\n",
            (
                ":7: exclude[0].dut.platform: 'xen' is none of the values of this key: "
                "bare-metal, container, vm"
            ),
        ),
        (
            "  - dut.platform: vm\n  - dut.platform: [vm, xen]\n",
            ":8: exclude[1].dut.platform: 'xen' is none of the values of this key",
        ),
        (
            "  - dut.platform: []\n",
            ":7: exclude[0].dut.platform: [] is none of the values of this key",
        ),
        (
            "  - dut.platfrom: vm\n",
            ":7: exclude[0].dut.platfrom: this key does not vary: did you mean 'dut.platform'?",
        ),
        (
            "  - traffic.rate: 10 kpkt/s\n",
            ":7: exclude[0].traffic.rate: this key does not vary: known: dut.platform",
        ),
        (
            "  - dut.platform: [bare-metal, container]\n  - dut.platform: vm\n",
            (":6: exclude: this excludes every combination: nothing is left to measure"),
        ),
        ("  - vm\n", ":7: exclude[0]: write a list of mappings from varied key paths"),
        ("  dut.platform: vm\n", ":6: exclude: write a list of mappings from varied key paths"),
    ],
)
def test_an_exclusion_that_is_wrong_is_told_with_its_line(
    tmp_path: Path, exclude: str, said: str
) -> None:
    assert complaint(tmp_path, PLATFORMS + exclude).startswith(f"/e.yaml{said}")


def test_an_exclusion_must_leave_something_out(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\ncases: [{traffic.cpu: 0, dut.cpus: [1]}, "
    text += "{traffic.cpu: 1, dut.cpus: [0]}]\nexclude: [{traffic.cpu: 0, dut.cpus: [0]}]\n"
    assert complaint(tmp_path, text) == (
        "/e.yaml:4: exclude[0]: this excludes nothing: no combination has all of these values"
    )
    assert complaint(tmp_path, "name: a\ntraffic: {}\nexclude: [{dut.cpus: [1]}]\n") == (
        "/e.yaml:3: exclude[0].dut.cpus: this key does not vary: nothing varies in this file"
    )


def test_a_combination_that_cannot_be_may_be_left_out(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\nvary:\n  traffic.rate: [1 pkt/s, 1 kpkt/s]\n"
    text += "  traffic.duration: [2 s, 100 ms]\nevaluation: {trim: 1 ms}\n"
    assert "not a single packet fits" in complaint(tmp_path, text)
    text += "exclude: [{traffic.rate: 1 pkt/s, traffic.duration: 100 ms}]\n"
    assert len(check(tmp_path, text).combinations) == 3


def test_options_of_a_forwarder_name_the_forwarder_that_they_do_not_fit(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\ndut: {options: {mode: io}}\n"
    text += "vary:\n  dut.forwarder: [testpmd, dpdk-l2fwd]\n"
    assert complaint(tmp_path, text).startswith("/e.yaml:3: dut.options.mode: unknown key")
    assert complaint(tmp_path, text).endswith(", with vary.dut.forwarder[1] (/e.yaml:5)")


def test_huge_products_are_refused_before_they_are_made(tmp_path: Path) -> None:
    numbers = list(range(1, 1001))
    text = "name: a\ntraffic: {}\nvary:\n"
    for key in ("flows", "cpu", "vlan", "reverse_cpu", "warm_up_packets"):
        text += f"  traffic.{key}: {numbers}\n"
    assert "1000000000000000 combinations, at most 10000" in complaint(tmp_path, text)


def test_an_experiment_may_say_how_it_differs(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\ndiffers: [its rate is lower]\n"
    text += "scales:\n  paper: {traffic.rate: 1 Mpkt/s, differs: [its cards are others]}\n"
    assert check(tmp_path, text).differs == ("its rate is lower",)
    assert check(tmp_path, text, "scale=paper").differs == ("its cards are others",)
    assert complaint(tmp_path, "name: a\ntraffic: {}\ndiffers: much\n") == (
        "/e.yaml:3: differs: 'much' is wrong, wanted: list of sentences, such as [The "
        "forwarder is DPDK's l2fwd; the paper's was libmoon's.]"
    )
