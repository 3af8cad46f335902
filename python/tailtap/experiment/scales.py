"""`scales`: other sizes of the same experiment, chosen by ``--set scale=NAME``.

An experiment that ships runs in minutes on any machine; what a paper measured for hours is a
mapping from key paths to values in the same file:

```
scales:
  paper: {traffic.rate: 1 Mpkt/s, traffic.duration: 160 s, repeat: 10}
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tailtap.base.document import Document, KeyPath, dotted
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.suggest import did_you_mean
from tailtap.experiment.combinations import where_varied

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
