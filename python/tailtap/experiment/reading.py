"""From an experiment file to checked experiments, with errors that name file, line and key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tailtap import forwarder
from tailtap.errors import InputError
from tailtap.experiment.document import (
    Document,
    KeyPath,
    did_you_mean,
    dotted,
    load,
    parse_value,
    set_in,
)
from tailtap.experiment.model import Experiment
from tailtap.experiment.scales import every_scale, path_of, scaled, split_choice

MAX_COMBINATIONS = 10_000
"""More runs than this in one experiment are a slip of the pen, not a plan."""
SECTIONS = ("dut", "traffic", "evaluation")
"""The parts of the file that `vary` can reach into."""


class CheckedExperiment:
    """An experiment file in which every combination of `vary` is known to be valid."""

    def __init__(self, document: Document, overrides: Sequence[str] = ()) -> None:
        """Check `document`. Raises `InputError` with file, line and key path."""
        self.document = document
        self.overrides = tuple(overrides)
        vary = _vary(document)
        combinations = list(_combinations(vary))
        if len(combinations) > MAX_COMBINATIONS:
            raise InputError(
                f"{document.place(('vary',))}: vary: {len(combinations)} combinations, "
                f"at most {MAX_COMBINATIONS} make sense"
            )
        self.combinations: list[tuple[Mapping[str, Any], Experiment]] = []
        """The varied values as written, and the whole experiment with them in place."""
        for choice in combinations:
            data: dict[str, Any] = dict(document.data)
            origins: dict[KeyPath, KeyPath] = {}
            for key, position in choice.items():
                path = tuple(key.split("."))
                origin: KeyPath = ("vary", key, position)
                data = set_in(data, path, vary[key][position], document.place(origin))
                origins[path] = origin
            experiment = _validate(document, data, origins)
            values = {key: vary[key][position] for key, position in choice.items()}
            self.combinations.append((values, experiment))
        first = self.combinations[0][1]
        self.name: str = first.name
        self.repeat: int = first.repeat
        self.require: Sequence[str] = first.require


def read_experiment(path: Path, overrides: Sequence[str] = ()) -> CheckedExperiment:
    """Read and check an experiment file with ``--set path=value`` overrides applied.

    ``--set scale=NAME`` comes first, wherever it stands. Raises `InputError`: one line with file,
    line, key path and what would be right.
    """
    written = load(path)
    scales = list(every_scale(written))
    scale, values = split_choice(overrides)
    document = written if scale is None else scaled(written, scale)
    for override in values:
        document = _override(document, override)
    _refuse_hidden(document, values)
    checked = CheckedExperiment(document, overrides)
    # A slip in a scale shows before the day that somebody chooses it.
    for other in scales:
        CheckedExperiment(other)
    return checked


def _override(document: Document, override: str) -> Document:
    key, equals, text = override.partition("=")
    place = f"--set {override!r}"
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{place}: write it as path=value, such as traffic.rate='20 kpkt/s'")
    return document.with_value(path_of(key), parse_value(text, place), place)


def _refuse_hidden(document: Document, overrides: Sequence[str]) -> None:
    """A value that `vary` replaces in every run would be set in vain."""
    vary = document.data.get("vary")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if isinstance(vary, Mapping) and key in vary:
            raise InputError(
                f"--set {override!r}: {key} is varied by {document.place(('vary', key))}: "
                f"set the list instead, --set 'vary.{key}=[…]'"
            )


def _vary(document: Document) -> Mapping[str, list[Any]]:
    vary = document.data.get("vary", {})
    place = document.place(("vary",))
    if not isinstance(vary, Mapping):
        raise InputError(f"{place}: vary: this is a mapping from a key path to a list of values")
    for key, values in vary.items():
        where = f"{document.place(('vary', key))}: vary.{key}"
        if key.split(".")[0] not in SECTIONS or "." not in key:
            raise InputError(
                f"{where}: only a path into {', '.join(SECTIONS)} can vary, such as traffic.rate"
            )
        if not isinstance(values, list) or not values:
            raise InputError(f"{where}: write a list of values, such as [1, 2]")
        for position, value in enumerate(values):
            if value in values[:position]:
                at = document.place(("vary", key, position))
                raise InputError(f"{at}: vary.{key}[{position}]: {value!r} is there already")
    keys = list(vary)
    for one, other in itertools.permutations(keys, 2):
        if other.startswith(one + "."):
            raise InputError(
                f"{document.place(('vary', other))}: vary.{other}: {one} varies as a whole already"
            )
    return vary


def _combinations(vary: Mapping[str, list[Any]]) -> Iterator[dict[str, int]]:
    """Every choice of one position from each varied list; the last key turns fastest."""
    for positions in itertools.product(*(range(len(values)) for values in vary.values())):
        yield dict(zip(vary, positions, strict=True))


def _validate(
    document: Document, data: Mapping[str, Any], origins: Mapping[KeyPath, KeyPath]
) -> Experiment:
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        raise _first_error(document, data, error, (), origins, Experiment) from error
    options = forwarder.FORWARDERS[experiment.dut.forwarder].Options
    try:
        options.model_validate(experiment.dut.options)
    except ValidationError as error:
        prefix = _place_of_options(data, experiment.dut.forwarder)
        raise _first_error(document, data, error, prefix, origins, options) from error
    return experiment


def _place_of_options(data: Mapping[str, Any], name: str) -> KeyPath:
    """Where the forwarder's options stand: below its name, or in a key of their own."""
    with_name = isinstance(data.get("dut", {}).get("forwarder"), Mapping)
    return ("dut", "forwarder", name) if with_name else ("dut", "options")


def _first_error(
    document: Document,
    data: Mapping[str, Any],
    error: ValidationError,
    prefix: KeyPath,
    origins: Mapping[KeyPath, KeyPath],
    model: type[BaseModel],
) -> InputError:
    # A misspelt key is both unknown and missing: say the first.
    details = sorted(error.errors(include_url=False), key=lambda row: row["type"] == "missing")
    first = details[0]
    location: KeyPath = first["loc"]
    path = _without_tags(data, prefix + location)
    for target, origin in origins.items():
        if path[: len(target)] == target:
            path = origin + path[len(target) :]
            break
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    where = f"{document.place(path)}: {dotted(path)}" if path else document.place(path)
    return InputError(f"{where}: {_explain(first, location, model)}{more}")


def _without_tags(data: object, location: KeyPath) -> KeyPath:
    """`location` without the names that pydantic gives to the members of a union."""
    path: list[str | int] = []
    for position, part in enumerate(location):
        if isinstance(data, Mapping):
            missing = part not in data
            if missing and position < len(location) - 1:
                continue  # a member of a union; the last part may be a key that is missing
            path.append(part)
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int):
            path.append(part)
            data = data[part] if part < len(data) else None
    return tuple(path)


def _explain(detail: Mapping[str, Any], location: KeyPath, model: type[BaseModel]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        return f"unknown key: {did_you_mean(str(location[-1]), known)}"
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    message = str(detail["msg"])
    return f"{message[:1].lower()}{message[1:]}, not {detail['input']!r}"


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        kinds = [] if field is None else _models_in(field.annotation)
        if len(kinds) > 1:
            # The next part of the path is a tag of the union: the kind.
            kinds = [kind for kind in kinds if _tag(kind) in path] or kinds
        if not kinds:
            continue
        model = kinds[0]
    return list(model.model_fields)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """The models that a value of this type can be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _tag(model: type[BaseModel]) -> object:
    """What the key `kind` of a model says."""
    field = model.model_fields.get("kind")
    return None if field is None else next(iter(get_args(field.annotation)), None)
