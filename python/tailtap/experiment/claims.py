"""`claims`: that each is about runs which the experiment has, at one of its scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailtap.base.document import Document, KeyPath
from tailtap.base.suggest import did_you_mean
from tailtap.experiment.combinations import combinations
from tailtap.experiment.tuning import VARIED, expanded
from tailtap.lab.topology.graphs import FORWARD, REVERSE

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
                _require_known(document, (*at, key, path), value, every)
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


def _require_known(
    document: Document, at: KeyPath, wanted: object, every: Sequence[Mapping[str, Any]]
) -> None:
    key = str(at[-1])
    keys = list(dict.fromkeys(key for one in every for key in one))
    if key not in keys:
        advice = did_you_mean(key, keys) if keys else "nothing varies in this file"
        raise document.wrong(at, f"this key does not vary: {advice}")
    values = [one[key] for one in every if key in one]
    wholes = [wanted] if wanted in values or not isinstance(wanted, list) else wanted
    unknown = [value for value in wholes if value not in values]
    # Which knobs an ablation leaves out depends on the machine.
    if key != VARIED and (unknown or not wholes):
        told = ", ".join(dict.fromkeys(str(value) for value in values))
        raise document.wrong(
            at, f"{unknown[0] if unknown else wanted!r} is none of the values of this key: {told}"
        )


def _fits(one: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        key == VARIED
        or (key in one and one[key] in [value, *(value if isinstance(value, list) else ())])
        for key, value in wanted.items()
    )
