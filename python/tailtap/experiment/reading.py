"""From an experiment file to checked experiments, with errors that name file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from tailtap.analysis.claims.model import Claim
from tailtap.base.document import (
    Detail,
    Document,
    KeyPath,
    Misfit,
    dotted,
    explain,
    load,
    parse_value,
    reason,
    set_in,
)
from tailtap.base.errors import InputError, InputErrors, WrongValue
from tailtap.base.schema import NoOptions
from tailtap.experiment.combinations import (
    CHOICE,
    SECTION,
    check_claims,
    combinations,
    every_scale,
    path_of,
    scaled,
    split_choice,
    where_varied,
)
from tailtap.experiment.dut import Dut
from tailtap.experiment.fields import models_in, takes
from tailtap.experiment.loops import LOOP, looped
from tailtap.experiment.model import ON_TESTBED, Experiment
from tailtap.experiment.sections import NONE, expanded
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.platforms import PLATFORMS, declaring
from tailtap.lab.topology.graphs import Cables
from tailtap.records.run import CASE

Origins = Mapping[KeyPath, KeyPath]
"""Where the varied values of one combination are written, by the key path that each replaces."""


class CheckedExperiment:
    """An experiment file of which every combination is valid."""

    def __init__(
        self, document: Document, overrides: Sequence[str] = (), *, on_testbed: bool = False
    ) -> None:
        """Check `document`, to be measured here or between the cards of a testbed.

        Raises `InputError` with file, line and key path.
        """
        written, document = document, expanded(document)
        self.document = document
        self.expanded = ["ablation written out for this machine"] if document is not written else []
        """What was replaced by the values that it stands for, in words."""
        self.overrides = tuple(overrides)
        self.combinations: list[tuple[Mapping[str, Any], Experiment]] = []
        """The varied values as written, and the whole experiment with them in place."""
        for combination in combinations(document):
            data: dict[str, Any] = dict(document.data)
            origins: dict[KeyPath, KeyPath] = {}
            for key, chosen in combination.items():
                if key == CASE:
                    continue
                path = tuple(key.split("."))
                data = set_in(data, path, chosen.value, document.place(chosen.origin))
                origins[path] = chosen.origin
            experiment = _validate(document, data, origins, on_testbed)
            values = {key: chosen.value for key, chosen in combination.items()}
            self.combinations.append((values, experiment))
        first = self.combinations[0][1]
        self.name: str = first.name
        self.repeat: int = first.repeat
        self.require: Sequence[str] = first.require
        self.claims: Sequence[Claim] = first.claims
        lab = () if on_testbed else first.differs_in_lab
        self.differs: Sequence[str] = (*lab, *first.differs)

    @property
    def entries(self) -> int:
        """How many ports of a DuT packets come in at, at most."""
        return max(experiment.entries for _, experiment in self.combinations)

    def wire(self, cables: Sequence[Cables]) -> None:
        """Measure all of it between the cards of a testbed. Raises as `Experiment.wired` does."""
        self.combinations = [
            (values, experiment.wired(cables)) for values, experiment in self.combinations
        ]


def read_experiment(
    path: Path, overrides: Sequence[str] = (), *, on_testbed: bool = False, named: bool = True
) -> CheckedExperiment:
    """Read and check an experiment file with ``--set path=value`` overrides applied.

    `on_testbed`, its DuT has network cards that the file does not name: `CheckedExperiment.wire`.
    Unless the user `named` it, the file is a stranger's.

    ``--set scale=NAME`` comes first, wherever it stands. Raises `InputError`: one line with file,
    line, key path and what would be right.
    """
    as_given = load(path, named=named)
    with_loop = partial(looped, folder=path.parent, named=named)
    written = with_loop(as_given)
    scales = list(map(with_loop, every_scale(written)))
    scale, values = split_choice(overrides)
    document = written if scale is None else with_loop(scaled(written, scale))
    for override in values:
        document = with_loop(_override(document, override))
    _refuse_hidden(document, values)
    checked = CheckedExperiment(document, overrides, on_testbed=on_testbed)
    checked.expanded += [f"{LOOP} written out"] if written is not as_given else []
    # A mistake in a scale is an error even when nobody chooses the scale.
    for other in scales:
        CheckedExperiment(other, on_testbed=on_testbed)
    if checked.claims:
        check_claims(written, [written, *scales])
    return checked


def _override(document: Document, override: str) -> Document:
    key, equals, text = override.partition("=")
    place = f"--set {override!r}"
    key = key.strip()
    if not equals or not key:
        raise InputError("write it as path=value, such as traffic.rate='20 kpkt/s'").at(place)
    return document.with_value(path_of(key), parse_value(text, place), place)


def _refuse_hidden(document: Document, overrides: Sequence[str]) -> None:
    """Raises `InputError` for a value that varies: each run would replace what --set sets."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        varied = where_varied(document, key)
        if varied is not None:
            raise WrongValue(
                "--set",
                override,
                f"{key} is varied by {document.place(varied)}: "
                f"set the list instead, --set '{dotted(varied)}=[…]'",
            )


def _validate(
    document: Document, data: Mapping[str, Any], origins: Origins, on_testbed: bool
) -> Experiment:
    try:
        experiment = Experiment.model_validate(data, context={ON_TESTBED: on_testbed})
    except ValidationError as error:
        raise errors_in(document, data, error, (), origins, Experiment) from error
    traffic = experiment.traffic
    generator = GENERATORS[traffic.generator].Options
    kinds: list[_Options] = [
        *_of_forwarders(experiment.dut, data),
        (generator, traffic.options, ("traffic", "options"), ("traffic", "generator")),
    ]
    for model, options, prefix, kind in kinds:
        try:
            model.model_validate(options, context=traffic)
        except ValidationError as error:
            raise errors_in(document, data, error, prefix, origins, model, [kind]) from error
    return experiment


_Options = tuple[type[BaseModel], Mapping[str, Any], KeyPath, KeyPath]
"""Options of a kind: their model, their values, where they stand, and where the kind is named."""


def _of_forwarders(dut: Dut, data: Mapping[str, Any]) -> Iterator[_Options]:
    """Those of the DuT's forwarder, and of each node that has its own."""
    every: list[tuple[KeyPath, Dut, Mapping[str, Any]]] = [(("dut",), dut, data.get("dut", {}))]
    for name, node in dut.named.items():
        every.append((("dut", "nodes", name), node, dut.nodes[name]))
    for path, one, written in every:
        named = written.get("forwarder")
        if len(path) > 1 and not {"forwarder", "options"} & set(written):
            continue
        # Below the forwarder's name, or in `options`.
        below = ("forwarder", one.forwarder) if isinstance(named, Mapping) else ("options",)
        options = FORWARDERS[one.forwarder].Options
        yield options, one.options, path + below, (*path, "forwarder")


def errors_in(
    document: Document,
    data: Mapping[str, Any],
    error: ValidationError,
    prefix: KeyPath,
    origins: Origins,
    model: type[BaseModel],
    beside: Sequence[KeyPath] = (),
) -> InputError:
    """What is wrong with the `data` of a document, below `prefix`: each mistake with its place."""
    found = _by_value(data, prefix, error)
    order = {path: number for number, path in enumerate(document.places)}

    def place(row: tuple[KeyPath, list[Detail]]) -> tuple[bool, int]:
        path, details = row
        written = _as_written(path, origins)
        there = [written[:length] for length in range(len(written), -1, -1)]
        line = next((order[one] for one in there if one in order), 0)
        return details[0]["type"] == "missing", line  # what is there comes first

    return InputErrors(
        [
            _sentence(document, path, details, prefix, origins, model, beside)
            for path, details in sorted(found.items(), key=place)
        ]
    )


def _by_value(
    data: Mapping[str, Any], prefix: KeyPath, error: ValidationError
) -> Mapping[KeyPath, list[Detail]]:
    """The details of an error by the value that they are about.

    Each form of a value that has several is told apart by pydantic. Where a key is unknown, those
    that are missing beside it are left out: it is one of them, misspelt.
    """
    details: list[Detail] = [dict(row) for row in error.errors(include_url=False)]
    within = {row["loc"][:length] for row in details for length in range(len(row["loc"]))}
    misspelt = {row["loc"][:-1] for row in details if row["type"] == "extra_forbidden"}
    found: dict[KeyPath, list[Detail]] = {}
    for row in details:
        location, kind, detail = row["loc"], row["type"], row
        if kind == "missing" and location[:-1] in misspelt:
            continue
        if kind == "too_short" and location in within:
            continue  # without those that are wrong
        if kind == "missing" and isinstance(location[-1], int):
            location, kind = location[:-1], "too_short"
            detail = {**detail, "type": kind, "ctx": {"min_length": 2}}
        fault = detail.get("ctx", {}).get("error")
        at = fault.at if isinstance(fault, Misfit) else ()
        path = _without_tags(data, prefix + location + at, key=bool(at) or kind == "missing")
        found.setdefault(path, []).append(detail)
    return found


def _sentence(
    document: Document,
    path: KeyPath,
    details: Sequence[Detail],
    prefix: KeyPath,
    origins: Origins,
    model: type[BaseModel],
    beside: Sequence[KeyPath],
) -> str:
    """What is wrong with the value at `path`, with its place."""
    first = details[0]
    fault = first.get("ctx", {}).get("error")
    causes = list(beside)
    if isinstance(fault, Misfit):
        causes += fault.beside
    elif fault is not None and path not in origins:
        causes.append(path)  # an error of a section may come from any of its keys
    others = _circumstances(document, origins, causes, path)
    if first["type"] == "extra_forbidden":
        said = explain(first, first["loc"], partial(_known_keys, model))
    else:
        said = reason(details, takes(_field(model, path[len(prefix) :], first["loc"])))
    path = _as_written(path, origins)
    where = f"{document.place(path)}: {dotted(path)}" if path else document.place(path)
    return f"{where}: {said}{others}"


def _as_written(path: KeyPath, origins: Origins) -> KeyPath:
    """Where the value at `path` is written: among those that vary, if it is one of them."""
    for target, origin in origins.items():
        if path[: len(target)] == target:
            return origin + path[len(target) :]
    return path


def _circumstances(
    document: Document, origins: Origins, beside: Sequence[KeyPath], path: KeyPath
) -> str:
    """The varied values below any of `beside` that may cause an error at `path`, with lines."""
    found = [
        f"{dotted(origin)} ({document.place(origin)})"
        for target, origin in origins.items()
        if path[: len(target)] != target and any(target[: len(whole)] == whole for whole in beside)
    ]
    return f", with {' and '.join(found)}" if found else ""


def _without_tags(data: object, location: KeyPath, *, key: bool) -> KeyPath:
    """`location` without the names that pydantic gives to the members of a union.

    The last part is the `key` of a value that may be absent, or a name if it is not there.
    """
    path: list[str | int] = []
    for position, part in enumerate(location):
        if isinstance(data, Mapping):
            missing = part not in data
            if missing and not (key and position == len(location) - 1):
                continue  # a member of a union
            path.append(part)
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int):
            path.append(part)
            data = data[part] if part < len(data) else None
    return tuple(path)


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys that may stand below `path`."""
    for part in path:
        model = _below(model, part, path) or model
    names = [field.alias or name for name, field in model.model_fields.items()]
    return [*names, *(declaring() if model is Dut else ())]


def _field(model: type[BaseModel], path: KeyPath, location: KeyPath) -> FieldInfo | None:
    """The field whose value is at `path`; None of what is within such a value.

    `location` is the same path with the names of the members of unions.
    """
    field: FieldInfo | None = None
    for part in path:
        if isinstance(part, int):
            return None
        field = model.model_fields.get(part)
        if field is None and model is Dut and part in declaring():
            field = PLATFORMS[declaring()[part][0]].Options.model_fields[part]
        if field is None:
            return None
        model = _below(model, part, location) or NoOptions
    return field


def _below(model: type[BaseModel], part: str | int, path: KeyPath) -> type[BaseModel] | None:
    """The model of what is below `part`; of a union, that of the kind which `path` names."""
    field = model.model_fields.get(str(part))
    kinds = [] if field is None else list(models_in(field.annotation))
    if len(kinds) > 1:
        # The next part of the path is a tag of the union: the kind.
        kinds = [kind for kind in kinds if _tag(kind) in path] or kinds
    return kinds[0] if kinds else None


def _tag(model: type[BaseModel]) -> object:
    """The value of the key `kind` of a model."""
    field = model.model_fields.get("kind")
    return None if field is None else next(iter(get_args(field.annotation)), None)


OPTIONS = ("command", "arguments", "rules", "huge_pages")
"""Options of forwarders that are run, name files, or take memory of the machine."""
WORD = re.compile(r"[\w-]*|[0-9.]+ ?[\w/]+")
"""A text that is no more than a choice or a quantity."""
HARMLESS = ("memory", "cgroup")
"""Keys of platforms that take nothing of the machine for long."""


def smallest(path: Path, overrides: Sequence[str], *, on_testbed: bool = False) -> list[str]:
    """The overrides that make the experiment at `path` take the least time.

    The scale that sends packets for the shortest time, all runs together, or none where that is how
    the file stands. Raises `InputError` as `read_experiment` does.
    """
    scales = load(path).data.get(SECTION)
    names = list(scales) if isinstance(scales, Mapping) else []
    choices = [list(overrides), *([f"{CHOICE}={name}", *overrides] for name in names)]
    return min(
        choices,
        key=lambda one: _seconds(read_experiment(path, one, on_testbed=on_testbed, named=False)),
    )


def _seconds(checked: CheckedExperiment) -> float:
    return checked.repeat * sum(experiment.seconds for _, experiment in checked.combinations)


def demands_of(checked: CheckedExperiment) -> list[str]:
    """What an experiment runs, reads and takes of the machine besides what every one does."""
    return list(dict.fromkeys(_demands(checked)))


def _demands(checked: CheckedExperiment) -> Iterator[str]:
    for _, experiment in checked.combinations:
        for event in experiment.events:
            yield f"events: {' '.join(event.run)}"
        if experiment.traffic.external is not None:
            yield f"traffic.external.command: {experiment.traffic.external.command}"
        if experiment.tap.ports is not None:
            yield f"tap.ports: {', '.join(experiment.tap.ports)}"
        for member in experiment.dut.members:
            dut = member.dut
            for name, value in dut.options.items():
                if name in OPTIONS or not all(map(WORD.fullmatch, _texts(value))):
                    yield f"dut.options.{name}: {value}"
            for name, kinds in declaring().items():
                default = PLATFORMS[kinds[0]].Options.model_fields[name].get_default()
                value = dut.given(name)
                if name not in HARMLESS and value not in (None, default):
                    yield f"dut.{name}: {_words(value)}"
            if dut.tuning != NONE:
                yield f"dut.tuning: {_words(dut.tuning)}"
            if not isinstance(dut.over, str):
                yield f"dut.over: {_words(dut.over)}"


def _texts(value: object) -> Iterator[str]:
    inside = value.values() if isinstance(value, Mapping) else value
    if isinstance(inside, str) or not isinstance(inside, Iterable):
        yield str(inside)
    else:
        for one in inside:
            yield from _texts(one)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
