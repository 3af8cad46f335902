"""What the reference and the JSON Schema say of experiment files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from pydantic import BaseModel, create_model

from tailtap.base.schema import Strict
from tailtap.experiment.json_schema import models_in_tree, schema
from tailtap.experiment.model import Experiment
from tailtap.experiment.reference import reference
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.platforms import PLATFORMS

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
        for example in field.examples:
            if name != "forwarder":  # it may be a mapping, which the whole of `dut` takes apart
                alone.model_validate({field.alias or name: example})


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
        for example in field.examples or ():
            assert errors({"name": "a", "traffic": {}, name: example}) == []


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
