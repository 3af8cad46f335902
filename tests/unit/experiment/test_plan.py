"""The plan: order, numbers, names; what reference and JSON Schema say of experiment files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment_files import check, complaint
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pydantic import BaseModel, create_model

from tailtap.base.files import slugify
from tailtap.base.schema import Strict
from tailtap.experiment.json_schema import models_in_tree, schema
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import make_plan, plan_record
from tailtap.experiment.reference import reference
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.platforms import PLATFORMS
from tailtap.records.record import as_json
from tests.unit.experiment.test_mistakes import CARDS
from tests.unit.experiment.test_refused import PLATFORMS as CASES

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
    assert chosen(tmp_path, CASES + "  - {dut.platform: vm, dut.kernel: rt}\n") == [
        ("bare-metal", "vanilla"),
        ("bare-metal", "rt"),
        ("container", "vanilla"),
        ("container", "rt"),
        ("vm", "vanilla"),
    ]
    several = CASES + "  - {dut.platform: [vm, container], dut.kernel: rt}\n"
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


ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def models() -> Iterator[type[BaseModel]]:
    """Every model of which an experiment file can have a part."""
    yield from models_in_tree(Experiment)
    for kind in (PLATFORMS, FORWARDERS, GENERATORS):
        for row in kind.values():
            yield from models_in_tree(row.Options)


MODELS = list(dict.fromkeys(models()))


def test_the_pages_are_fresh() -> None:
    assert (ROOT / "docs/reference/experiment.md").read_text() == reference(), "run 'make docs'"
    stored = json.loads((ROOT / "docs/reference/experiment.schema.json").read_text())
    assert stored == schema(), "run 'make docs'"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_has_a_meaning_and_valid_examples(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        assert field.description and field.description.endswith("."), name
        assert field.examples, name
        fields: dict[str, Any] = {name: (field.annotation, field)}
        alone = create_model("Key", __base__=Strict, **fields)
        for one in field.examples:
            if name != "forwarder":  # it may be a mapping, which the whole of `dut` takes apart
                alone.model_validate({field.alias or name: one})


def errors(content: object) -> list[str]:
    """What the schema has against an experiment file."""
    found = Draft7Validator(schema()).iter_errors(content)
    return [".".join(map(str, error.absolute_path)) for error in found]


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(schema())


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLES))
)
def test_examples_fit_the_schema(path: Path) -> None:
    assert errors(yaml.safe_load(path.read_text())) == []


def test_the_examples_of_the_reference_fit_the_schema() -> None:
    for name, field in Experiment.model_fields.items():
        for one in field.examples or ():
            assert errors({"name": "a", "traffic": {}, name: one}) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("traffic: {rate: 10}", "traffic.rate"),
        ("traffic: {rate: 10 kpps}", "traffic.rate"),
        ("traffic: {siez: 64 B}", "traffic"),
        ("traffic: {size: [64 B, 9]}", "traffic.size"),
        ("traffic: {pattern: bursts}", "traffic.pattern"),
        ("traffic: {ip: 5}", "traffic.ip"),
        ("traffic: {generator: moongen}", "traffic.generator"),
        ("traffic: {flows: {src: 1}}", "traffic.flows"),
        ("traffic: {}\ndut: {platform: bare_metal}", "dut.platform"),
        ("traffic: {}\ndut: {memory: 5}", "dut.memory"),
        ("traffic: {}\ndut: {memry: 5 B}", "dut"),
        ("traffic: {}\ndut: {forwarder: {xdp: {mode: fast}}}", "dut.forwarder"),
        ("traffic: {}\ndut: {forwarder: xdp, options: {mode: fast}}", "dut.options.mode"),
        ("traffic: {}\nvary: {dut.platfrom: [vm]}", "vary"),
        ("traffic: {}\nvary: {traffic.rate: 1 kpkt/s}", "vary.traffic.rate"),
        ("traffic: {}\nvary: {traffic.rate: [1 kpps]}", "vary.traffic.rate.0"),
        ("traffic: {}\ncases: [{dut.cpus: one}]", "cases.0.dut.cpus"),
        ("traffic: {}\nscales: {paper: {traffic.rate: 5}}", "scales.paper.traffic.rate"),
        ("traffic: {}\nscales: {paper: {name: b}}", "scales.paper"),
        ("traffic: {}\nrepeat: 0", "repeat"),
    ],
)
def test_slips_do_not_fit_the_schema(text: str, where: str) -> None:
    assert errors(yaml.safe_load(f"name: a\n{text}")) == [where]
