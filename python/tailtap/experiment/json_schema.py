"""The JSON Schema of experiment files, which editors use to complete and to check them.

`python -m tailtap.experiment.json_schema` prints it, with the kinds of all installed packages.
A file that the schema refuses is wrong. A file that it accepts may still be wrong, because the
schema does not check values against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from tailtap.base.registry import Registry
from tailtap.experiment.combinations import OUTSIDE, SECTIONS, SINGLE
from tailtap.experiment.fields import default_text, models_in, written
from tailtap.experiment.model import Experiment
from tailtap.experiment.sections import ABLATION, VARIED
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.instruments.taps.kinds import TAPS
from tailtap.lab.platforms import PLATFORMS
from tailtap.records.run import CASE

Json: TypeAlias = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"


def schema() -> Json:
    """The whole schema."""
    result = Experiment.model_json_schema()
    result["$schema"] = DIALECT
    definitions: Json = result["$defs"]
    _show_defaults(definitions, models_in_tree(Experiment))
    names = {
        section: next(models_in(Experiment.model_fields[section].annotation)).__name__
        for section in SECTIONS
    }
    dut, traffic = definitions[names["dut"]], definitions[names["traffic"]]
    for name, platform in PLATFORMS.working():
        definitions[f"platform.{name}"] = _schema_of(f"platform.{name}", platform.Options)
        for key in platform.Options.model_fields:
            one = {"$ref": f"#/$defs/platform.{name}/properties/{key}"}
            dut["properties"].setdefault(key, one)
    _set(dut, "platform", _names(PLATFORMS))
    with_options = []
    for name, forwarder in FORWARDERS.working():
        definitions[f"forwarder.{name}"] = _schema_of(f"forwarder.{name}", forwarder.Options)
        with_options.append(name)
    named = {
        "type": "object",
        "properties": {name: {"$ref": f"#/$defs/forwarder.{name}"} for name in with_options},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    _set(dut, "forwarder", {"anyOf": [_names(FORWARDERS), named]})
    dut["allOf"] = [_chosen("forwarder", name) for name in with_options]
    traffic["allOf"] = []
    for name, generator in GENERATORS.working():
        definitions[f"generator.{name}"] = _schema_of(f"generator.{name}", generator.Options)
        traffic["allOf"].append(_chosen("generator", name))
    _set(traffic, "generator", _names(GENERATORS))
    _set(definitions[names["tap"]], "kind", _names(TAPS))
    paths = {
        f"{section}.{key}": {"$ref": f"#/$defs/{name}/properties/{key}"}
        for section, name in names.items()
        for key in definitions[name]["properties"]
    }
    paths |= {key: {"$ref": f"#/properties/{key}"} for key in SINGLE}
    varied = _by_path(paths, _list_of)
    tunings = varied["properties"][VARIED]
    varied["properties"][VARIED] = {"anyOf": [{"const": ABLATION}, tunings]}
    _set(result, "vary", varied)
    case: Json = {CASE: {"type": "string", "minLength": 1}}
    _set(
        result,
        "cases",
        {"type": "array", "items": _by_path({**paths, **case}, _itself)},
    )
    excluded = _by_path({**paths, **case}, lambda value: {"anyOf": [value, _list_of(value)]})
    _set(result, "exclude", {"type": "array", "items": excluded})
    _set(result, "scales", _scales(result["properties"], paths))
    return result


def models_in_tree(model: type[BaseModel]) -> list[type[BaseModel]]:
    """`model` and all models below it."""
    found = [model]
    for one in found:
        for field in one.model_fields.values():
            found += [inner for inner in models_in(field.annotation) if inner not in found]
    return found


def _show_defaults(definitions: Json, models: Iterable[type[BaseModel]]) -> None:
    """Defaults as a file has them, with units, and not as integers in base units."""
    for model in models:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        for name, row in definitions.get(model.__name__, {}).get("properties", {}).items():
            field, told = fields[name], written(fields[name])
            if row.get("default") is None:
                row.pop("default", None)
            elif told is not None and told.show is not None:
                row["default"] = default_text(field)


def _schema_of(name: str, model: type[BaseModel]) -> Json:
    """The schema of a kind's options, which stands in the definitions under `name`."""
    found = model.model_json_schema(ref_template=f"#/$defs/{name}/$defs/{{model}}")
    below = {one.__name__: one for one in models_in_tree(model)}
    _show_defaults({model.__name__: found}, [model])
    _show_defaults(found.get("$defs", {}), below.values())
    return found


def _set(model: Json, name: str, found: Json) -> None:
    """Replace the schema of a property, and keep its description."""
    old = model["properties"][name]
    kept = {key: old[key] for key in ("title", "description", "examples", "default") if key in old}
    model["properties"][name] = {**kept, **found}


def _names(kinds: Registry[Any]) -> Json:
    return {"anyOf": [{"const": name, "description": row.summary} for name, row in kinds.working()]}


def _chosen(key: str, name: str) -> Json:
    """`options` are those of the kind that `key` names."""
    return {
        "if": {"properties": {key: {"const": name}}, "required": [key]},
        "then": {"properties": {"options": {"$ref": f"#/$defs/{key}.{name}"}}},
    }


def _itself(value: Json) -> Json:
    return value


def _list_of(value: Json) -> Json:
    return {"type": "array", "items": value, "minItems": 1}


def _by_path(paths: Mapping[str, Json], shape: Any) -> Json:
    """A mapping from key paths to values. Paths into a section's mappings take any value."""
    sections = "|".join(SECTIONS)
    return {
        "type": "object",
        "properties": {path: shape(value) for path, value in paths.items()},
        "patternProperties": {rf"^({sections})\.[^.]+\..+$": shape({})},
        "additionalProperties": False,
    }


def _scales(top: Json, paths: Mapping[str, Json]) -> Json:
    known: Json = {name: {"$ref": f"#/properties/{name}"} for name in top if name not in OUTSIDE}
    known |= paths
    known |= {f"vary.{path}": _list_of(value) for path, value in paths.items()}
    one = {**_by_path(known, _itself), "minProperties": 1}
    return {"type": "object", "additionalProperties": one}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
