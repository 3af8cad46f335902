"""From an experiment file to checked experiments, with errors that name file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tailtap import forwarder
from tailtap.errors import InputError
from tailtap.experiment.combinations import combinations, where_varied
from tailtap.experiment.document import (
    Document,
    KeyPath,
    Misfit,
    did_you_mean,
    dotted,
    load,
    parse_value,
    set_in,
)
from tailtap.experiment.model import Experiment
from tailtap.experiment.scales import every_scale, path_of, scaled, split_choice

Origins = Mapping[KeyPath, KeyPath]
"""Where the varied values of one combination are written, by the key path that each replaces."""


class CheckedExperiment:
    """An experiment file in which every combination of what varies is known to be valid."""

    def __init__(self, document: Document, overrides: Sequence[str] = ()) -> None:
        """Check `document`. Raises `InputError` with file, line and key path."""
        self.document = document
        self.overrides = tuple(overrides)
        self.combinations: list[tuple[Mapping[str, Any], Experiment]] = []
        """The varied values as written, and the whole experiment with them in place."""
        for combination in combinations(document):
            data: dict[str, Any] = dict(document.data)
            origins: dict[KeyPath, KeyPath] = {}
            for key, chosen in combination.items():
                path = tuple(key.split("."))
                data = set_in(data, path, chosen.value, document.place(chosen.origin))
                origins[path] = chosen.origin
            experiment = _validate(document, data, origins)
            values = {key: chosen.value for key, chosen in combination.items()}
            self.combinations.append((values, experiment))
        first = self.combinations[0][1]
        self.name: str = first.name
        self.repeat: int = first.repeat
        self.require: Sequence[str] = first.require
        self.differs: Sequence[str] = first.differs


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
    """A value that is varied, and so replaced in every run, would be set in vain."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        varied = where_varied(document, key)
        if varied is not None:
            raise InputError(
                f"--set {override!r}: {key} is varied by {document.place(varied)}: "
                f"set the list instead, --set '{dotted(varied)}=[…]'"
            )


def _validate(document: Document, data: Mapping[str, Any], origins: Origins) -> Experiment:
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        raise _first_error(document, data, error, (), origins, Experiment) from error
    options = forwarder.FORWARDERS[experiment.dut.forwarder].Options
    try:
        options.model_validate(experiment.dut.options, context=experiment.traffic)
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
    origins: Origins,
    model: type[BaseModel],
) -> InputError:
    # A misspelt key is both unknown and missing: say the first.
    details = sorted(error.errors(include_url=False), key=lambda row: row["type"] == "missing")
    first = details[0]
    location: KeyPath = first["loc"]
    reason = first.get("ctx", {}).get("error")
    beside: list[KeyPath] = [("dut", "forwarder")] if prefix else []
    if isinstance(reason, Misfit):
        location += reason.at
        beside += reason.beside
    path = _without_tags(data, prefix + location)
    if reason is not None and not isinstance(reason, Misfit) and path not in origins:
        beside.append(path)  # what was found about a whole may be about any of its parts
    others = _circumstances(document, origins, beside, path)
    for target, origin in origins.items():
        if path[: len(target)] == target:
            path = origin + path[len(target) :]
            break
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    where = f"{document.place(path)}: {dotted(path)}" if path else document.place(path)
    return InputError(f"{where}: {_explain(first, location, model)}{more}{others}")


def _circumstances(
    document: Document, origins: Origins, beside: Sequence[KeyPath], path: KeyPath
) -> str:
    """Which varied values below any of `beside` bear on an error at `path`, and their lines."""
    found = [
        f"{dotted(origin)} ({document.place(origin)})"
        for target, origin in origins.items()
        if path[: len(target)] != target and any(target[: len(whole)] == whole for whole in beside)
    ]
    return f", with {' and '.join(found)}" if found else ""


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
