"""What varies in an experiment, and what is said about it: `vary`, `cases`, `exclude`, `claims`.

`vary` is a cross product of lists, `cases` are values that change together, crossed with it, and
`exclude` says which of the combinations are left out. `case` is what a case is called:

```
cases:
  - {case: X520, dut.ports: [enp1s0f0, enp1s0f1], tap.ports: [enp2s0f0, enp2s0f1]}
  - {case: X710, dut.ports: [enp3s0f0, enp3s0f1], tap.ports: [enp4s0f0, enp4s0f1]}
vary:
  dut.platform: [bare-metal, vm]
  dut.kernel: [vanilla, rt]
exclude:
  - {dut.platform: vm, dut.kernel: rt}
```
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailtap.base.document import Document, KeyPath, dotted
from tailtap.base.errors import InputError, WrongValue, did_you_mean
from tailtap.experiment.sections import VARIED, expanded
from tailtap.lab.topology.graphs import FORWARD, REVERSE
from tailtap.records.run import CASE

VARY, CASES, EXCLUDE = "vary", "cases", "exclude"
SECTIONS = ("dut", "traffic", "tap", "evaluation")
"""The parts of the file in which keys can vary."""
SINGLE = ("trace", "interrupts")
"""Keys outside these parts that can vary."""
MAX_COMBINATIONS = 10_000
"""More runs than this in one experiment are a mistake in the file, not a plan."""
_CASES = (
    "write a list of mappings from key paths to values, such as "
    "[{dut.cpus: [1], traffic.cpu: 0}, {dut.cpus: [0], traffic.cpu: 1}]"
)
_EXCLUSIONS = (
    "write a list of mappings from varied key paths to a value or a list of values, such as "
    "[{dut.platform: vm, traffic.rate: [1 Mpkt/s, 2 Mpkt/s]}]"
)


@dataclass(frozen=True)
class Chosen:
    """A varied value as written, and where it is written."""

    value: Any
    origin: KeyPath


Combination = Mapping[str, Chosen]
"""What each varied key path is in one combination."""


def combinations(document: Document) -> list[Combination]:
    """All combinations without those that `exclude` names.

    Those of one case stand together, and the last key varies fastest.

    Raises `InputError` with file, line and key.
    """
    cases, vary = _cases(document), _vary(document)
    together = list(cases[0]) if cases else []
    _require_apart(document, together, vary)
    axes: list[Sequence[Combination]] = [cases] if cases else []
    axes += [[{key: value} for value in values] for key, values in vary.items()]
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_COMBINATIONS:
        what = VARY if vary else CASES
        raise document.wrong(
            (what,), f"{count} combinations, at most {MAX_COMBINATIONS} make sense"
        )
    every: list[Combination] = [
        {key: value for part in parts for key, value in part.items()}
        for parts in itertools.product(*axes)
    ]
    return _without_exclusions(document, every)


def where_varied(document: Document, key: str) -> KeyPath | None:
    """Where the file has the values that replace `key`, or a section with it, in every run."""
    vary = document.data.get(VARY)
    for name in vary if isinstance(vary, Mapping) else ():
        if _encloses(str(name), key):
            return (VARY, name)
    cases = document.data.get(CASES)
    for case in cases if isinstance(cases, list) else ():
        if isinstance(case, Mapping) and any(_encloses(str(name), key) for name in case):
            return (CASES,)
    return None


def _vary(document: Document) -> dict[str, list[Chosen]]:
    vary = document.data.get(VARY, {})
    if not isinstance(vary, Mapping):
        raise document.wrong((VARY,), "this is a mapping from a key path to a list of values")
    found: dict[str, list[Chosen]] = {}
    for key, values in vary.items():
        _require_path(document, (VARY, key))
        if not isinstance(values, list) or not values:
            raise document.wrong((VARY, key), "write a list of values, such as [1, 2]")
        _refuse_repeated(document, (VARY, key), values)
        found[key] = [Chosen(value, (VARY, key, at)) for at, value in enumerate(values)]
    return found


def _cases(document: Document) -> list[dict[str, Chosen]]:
    cases = _mappings(document, CASES, _CASES)
    found: list[dict[str, Chosen]] = []
    for number, case in enumerate(cases):
        at = (CASES, number)
        for key in case:
            _require_path(document, (*at, key))
        for key in [*case, *cases[0]]:
            if key not in case or key not in cases[0]:
                lacking = 0 if key in case else number
                raise document.wrong(
                    at, f"{key} is missing in {CASES}[{lacking}]: all cases name the same key paths"
                )
        # In the order of the first case, so that it does not matter in which they are written.
        found.append({key: Chosen(case[key], (*at, key)) for key in cases[0]})
        name = case.get(CASE, CASE)
        if not isinstance(name, str) or not name:
            raise document.wrong((*at, CASE), "write the name of this case")
    _refuse_repeated(document, (CASES,), cases)
    return found


def _mappings(document: Document, section: str, advice: str) -> list[Mapping[str, Any]]:
    """The content of a section that is a list of mappings, none of them empty."""
    rows = document.data.get(section, [])
    if not isinstance(rows, list):
        raise document.wrong((section,), advice)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not row:
            raise document.wrong((section, number), advice)
    return rows


def _require_path(document: Document, at: KeyPath) -> None:
    """Raises `InputError` when the last part is no path to vary."""
    key = str(at[-1])
    inside = "." in key and key.split(".", maxsplit=1)[0] in SECTIONS
    if not inside and key not in SINGLE and (key != CASE or at[0] != CASES):
        raise document.wrong(
            at,
            f"only a path into {', '.join(SECTIONS)} can vary, such as traffic.rate, and "
            f"{', '.join(SINGLE)}",
        )


def _require_apart(document: Document, cases: Iterable[str], vary: Iterable[str]) -> None:
    """Raises `InputError` when something varies in two ways at once."""
    places: dict[str, KeyPath] = {key: (CASES, 0, key) for key in cases}
    for key in vary:
        if key in places:
            raise document.wrong(
                (VARY, key),
                f"the cases vary it already ({document.place(places[key])}): leave one of them out",
            )
        places[key] = (VARY, key)
    for key, place in places.items():
        parts = key.split(".")
        for length in range(1, len(parts)):
            whole = ".".join(parts[:length])
            if whole in places:
                raise document.wrong(place, f"{whole} varies as a whole already")


def _without_exclusions(document: Document, every: list[Combination]) -> list[Combination]:
    values = [{key: chosen.value for key, chosen in one.items()} for one in every]
    left = list(range(len(every)))
    for number, row in enumerate(_mappings(document, EXCLUDE, _EXCLUSIONS)):
        at: KeyPath = (EXCLUDE, number)
        for key, wanted in row.items():
            _require_known(document, (*at, key), wanted, values)
        matching = {
            place
            for place, one in enumerate(values)
            if all(_matches(one[key], wanted) for key, wanted in row.items())
        }
        if not matching:
            raise document.wrong(
                at, "this excludes nothing: no combination has all of these values"
            )
        left = [place for place in left if place not in matching]
    if not left:
        raise document.wrong(
            (EXCLUDE,), "this excludes every combination: nothing is left to measure"
        )
    return [every[place] for place in left]


def _require_known(
    document: Document,
    at: KeyPath,
    wanted: object,
    every: Sequence[Mapping[str, Any]],
    *,
    is_open: bool = False,
) -> None:
    """Raises `InputError` for a key or value that does not vary; an open key may have any value."""
    key = str(at[-1])
    keys = list(dict.fromkeys(name for one in every for name in one))
    if key not in keys:
        advice = did_you_mean(key, keys) if keys else "nothing varies in this file"
        raise document.wrong(at, f"this key does not vary: {advice}")
    values = [one[key] for one in every if key in one]
    wholes = [wanted] if wanted in values or not isinstance(wanted, list) else wanted
    unknown = [value for value in wholes if value not in values]
    if not is_open and (unknown or not wholes):
        known = ", ".join(dict.fromkeys(str(value) for value in values))
        raise document.wrong(
            at, f"{unknown[0] if unknown else wanted!r} is none of the values of this key: {known}"
        )


def _matches(value: object, wanted: object) -> bool:
    """Whether `wanted` is this value, or a list of values with this one in it."""
    return value == wanted or (isinstance(wanted, list) and value in wanted)


def _refuse_repeated(document: Document, at: KeyPath, values: Sequence[object]) -> None:
    if len(values) > MAX_COMBINATIONS:
        return  # a later error says so, and comparing all of them would take too long
    for number, value in enumerate(values):
        if value in values[:number]:
            raise document.wrong((*at, number), f"{value!r} is in the list twice")


def _encloses(path: str, key: str) -> bool:
    return key == path or key.startswith(f"{path}.")


CHOICE = "scale"
"""The name of the choice in ``--set``; it is no key of the file."""
SECTION = "scales"
OUTSIDE = ("name", "question", "claims", SECTION, CHOICE)
"""What a scale cannot set."""

Overrides = Sequence[str]


def split_choice(overrides: Overrides) -> tuple[str | None, list[str]]:
    """The scale that ``--set`` chooses, and the overrides that set values of the file.

    Raises `InputError` for a second choice and for values of a scale.
    """
    chosen: str | None = None
    others: list[str] = []
    for override in overrides:
        key, _, value = override.partition("=")
        key = key.strip()
        if key == CHOICE:
            if chosen is not None:
                raise WrongValue("--set", override, f"the scale is {chosen} already: choose one")
            chosen = value.strip()
        elif key.split(".")[0] == SECTION:
            raise WrongValue("--set", override, "set the value itself, not that of a scale")
        else:
            others.append(override)
    return chosen, others


def scaled(document: Document, name: str) -> Document:
    """`document` with the values of the scale `name`, and without `scales`.

    Raises `InputError` when there is no such scale.
    """
    scales = _scales(document)
    said = f"--set {f'{CHOICE}={name}'!r}"
    if not scales:
        raise InputError(f"{document.name} has no scales").at(said)
    if name not in scales:
        raise InputError(f"there is no scale {name!r}: {did_you_mean(name, scales)}").at(said)
    return _apply(document, name)


def every_scale(document: Document) -> Iterator[Document]:
    """`document` at each of its scales. Raises `InputError` for one that is written wrongly."""
    for name in _scales(document):
        yield _apply(document, name)


def path_of(key: str) -> KeyPath:
    """Where the value of a dotted `key` stands; the keys of `vary` are paths themselves."""
    if key.startswith("vary."):
        return ("vary", key.removeprefix("vary."))
    return tuple(key.split("."))


def _apply(document: Document, name: str) -> Document:
    values = document.data[SECTION][name]
    data = {key: value for key, value in document.data.items() if key != SECTION}
    places = {at: place for at, place in document.places.items() if at[:1] != (SECTION,)}
    result = Document(document.name, data, places)
    for key, value in values.items():
        place = document.place((SECTION, name, key))
        if key.split(".")[0] in OUTSIDE:
            raise document.wrong((SECTION, name, key), f"a scale cannot set {key.split('.')[0]}")
        result = result.with_value(path_of(key), value, place)
    for key in values:
        varied = where_varied(result, key)
        if varied is not None:
            raise document.wrong(
                (SECTION, name, key),
                f"{key} is varied by {result.place(varied)}: set the list instead, as "
                f"{dotted(varied)}",
            )
    return result


def _scales(document: Document) -> Mapping[str, Mapping[str, object]]:
    scales = document.data.get(SECTION, {})
    if not isinstance(scales, Mapping):
        raise document.wrong((SECTION,), "this is a mapping from a name to key paths")
    for name, values in scales.items():
        if not isinstance(values, Mapping) or not values:
            advice = "write a mapping from key paths to values, such as {repeat: 10}"
            raise document.wrong((SECTION, name), advice)
    return scales


CLAIMS = "claims"


def check_claims(document: Document, scales: Sequence[Document]) -> None:
    """Raise `InputError`, with the line, for claims of a file about what it never measures.

    `scales` are its sizes: what only one of them has may be claimed, and is not shown by the
    others. The claims themselves are checked before.
    """
    every = [combination for scale in scales for combination in _values(scale)]
    known: dict[str, KeyPath] = {}
    for number, claim in enumerate(document.data[CLAIMS]):
        at: KeyPath = (CLAIMS, number)
        name = claim.get("id") or f"claim-{number + 1}"
        if name in known:
            raise document.wrong((*at, "id"), f"{name} is claimed twice")
        known[name] = at
        about = claim.get("for") or {}
        for key, others in (("for", {}), ("against", about)):
            wanted = claim.get(key) or {}
            for path, value in wanted.items():
                # Which knobs an ablation leaves out depends on the machine.
                _require_known(document, (*at, key, path), value, every, is_open=path == VARIED)
            if wanted and not any(_fits(one, {**others, **wanted}) for one in every):
                raise document.wrong((*at, key), "no combination has all of these values")
        others = {**about, **(claim.get("against") or {})}
        if "against" in claim and all(_fits(one, others) for one in every if _fits(one, about)):
            raise document.wrong(
                (*at, "against"), "these are the runs that it is about: name others"
            )


def _values(document: Document) -> list[dict[str, Any]]:
    """What varies in each combination, flows included."""
    document = expanded(document)
    found = []
    for combination in combinations(document):
        values = {key: chosen.value for key, chosen in combination.items()}
        dut, traffic = (document.data.get(name) for name in ("dut", "traffic"))
        flows = dut.get("flows") if isinstance(dut, Mapping) else None
        both = isinstance(traffic, Mapping) and traffic.get("bidirectional")
        own = [{"flow": name} for name in flows or ()]
        own = own or ([{"direction": one} for one in (FORWARD, REVERSE)] if both else [{}])
        found += [{**values, **one} for one in own]
    return found


def _fits(one: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        key == VARIED
        or (key in one and one[key] in [value, *(value if isinstance(value, list) else ())])
        for key, value in wanted.items()
    )
