"""Requirements as people write them: ``p99.999 < 1 ms``, ``loss == 0``.

A requirement compares a quantity with a limit. `QUANTITIES` lists what there is; everything else
is an `InputError` of one line that quotes what is wrong and says what is known.

Named requirements, each with the document and the clause that it is from.

Documents state what a whole path must hold; a device is one part of it. A profile asks the whole
of the device: it is necessary, not sufficient, and a budget for one hop is `--require`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from tailtap.base.errors import InputError, did_you_mean
from tailtap.base.units import parse_time
from tailtap.records.printed import ProfileRow

Comparator = Literal["<", "<=", "==", ">=", ">"]

UPPER: tuple[Comparator, ...] = ("<", "<=")
LOWER: tuple[Comparator, ...] = (">=", ">")
NONE_OR_UPPER: tuple[Comparator, ...] = ("==", *UPPER)

_COMPARISON = re.compile(r"[<>=!≤≥]+")
_CALL = re.compile(r"([A-Za-z_-]+)\s*\((.*)\)", re.DOTALL)
_PERCENTILE = re.compile(r"p(\d{1,30}(?:\.\d{1,30})?)")
_SHARE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*(%|ppm)")
_SHARE_UNITS = {"%": 100, "ppm": 1_000_000}


@dataclass(frozen=True)
class Requirement:
    """One requirement.

    `argument` and `limit` are exact: a time in nanoseconds, or a share from 0 to 1.
    """

    #: As written, with single spaces.
    text: str
    #: A key of `QUANTITIES`.
    quantity: str
    #: What stands in parentheses, or the percentile (0 to 1); None where there is neither.
    argument: Fraction | None
    comparator: Comparator
    limit: Fraction
    #: The profile that it is from, if any.
    profile: str | None = None
    #: The name in parentheses, of a quantity that has one.
    of: str = ""

    @property
    def strict(self) -> bool:
        """Whether the limit itself is already too much, or too little."""
        return self.comparator in ("<", ">")


@dataclass(frozen=True)
class Quantity:
    """A kind of quantity: how it is written, and what it may be compared with."""

    #: As it stands in a list of all.
    example: str
    comparators: tuple[Comparator, ...]
    #: Reads the limit.
    limit: Callable[[str], Fraction]
    #: Reads what stands in parentheses; None for a quantity without.
    argument: Callable[[str], Fraction] | None = None
    #: Whether a name stands in parentheses.
    named: bool = False


def parse_requirement(text: str) -> Requirement:
    """The requirement that a text such as ``p99.999 < 1 ms`` states. Raises `InputError`."""
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no requirement: write text such as 'p99.999 < 1 ms'")
    whole = " ".join(text.split())
    found = _COMPARISON.search(whole)
    if found is None:
        if whole in PROFILES:
            raise InputError(f"'{whole}' is a profile, not a requirement: write profile {whole}")
        raise InputError(
            f"'{whole}' compares nothing: write a quantity, < or <=, and a limit, such as "
            "'p99.999 < 1 ms'"
        )
    left, right = whole[: found.start()].strip(), whole[found.end() :].strip()
    try:
        name, argument, of = _quantity(left)
        kind = QUANTITIES[name]
        comparator = _comparator(found[0], left, kind)
        limit = kind.limit(right)
    except InputError as error:
        raise InputError(f"'{whole}': {error}") from error
    if comparator == "==" and limit != 0:
        raise InputError(f"'{whole}': == is for 0 only; write < or <= for a limit")
    if comparator == "<" and limit == 0:
        raise InputError(f"'{whole}': nothing is below 0; write == 0")
    if comparator == ">" and limit == 1:
        raise InputError(f"'{whole}': nothing is above 100 %; write >= 100 %")
    return Requirement(f"{left} {comparator} {right}", name, argument, comparator, limit, of=of)


def parse_requirements(texts: Iterable[str]) -> tuple[Requirement, ...]:
    """Requirements, and profiles as ``profile urllc-5g``, each once. Raises `InputError`."""
    found: list[Requirement] = []
    for text in texts:
        word, _, name = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")
        found.extend(profile(name.strip()) if word == "profile" else [parse_requirement(text)])
    return tuple(dict.fromkeys(found))


def profile(name: str) -> Sequence[Requirement]:
    """The requirements of a named profile. Raises `InputError` when there is none."""
    if name not in PROFILES:
        raise InputError(
            f"there is no profile '{name}': {did_you_mean(name, PROFILES)}; "
            "tailtap verdict --list-profiles shows them with their sources"
        )
    return [replace(parse_requirement(text), profile=name) for text in PROFILES[name].requirements]


def _quantity(text: str) -> tuple[str, Fraction | None, str]:
    """The key of `QUANTITIES`, its argument, and the name in parentheses."""
    if text == "median":
        return "percentile", Fraction(1, 2), ""
    if re.fullmatch(r"[pP][\d.,]+", text):
        return "percentile", _percentile(text), ""
    call = _CALL.fullmatch(text)
    name = call[1] if call else text
    kind = QUANTITIES.get(name)
    if kind is None or name == "percentile":
        known = ["median", *(kind.example for kind in QUANTITIES.values())]
        if name in ("p", "percentile") or not name:
            hint = f"known: {', '.join(known)}"
        else:
            near = did_you_mean(name, ["median", *(n for n in QUANTITIES if n != "percentile")])
            hint = near if near.startswith("did") else f"known: {', '.join(known)}"
        raise InputError(f"there is no quantity '{text}': {hint}")
    if (call is None) != (kind.argument is None and not kind.named):
        raise InputError(f"'{text}' is written {kind.example}")
    inner = "" if call is None else call[2].strip()
    return name, None if kind.argument is None else kind.argument(inner), inner * kind.named


def _comparator(text: str, left: str, kind: Quantity) -> Comparator:
    for known in kind.comparators:
        if text == known:
            return known
    raise InputError(f"'{text}' does not go with {left}: write {' or '.join(kind.comparators)}")


def _time(text: str) -> Fraction:
    """A time above zero, in nanoseconds."""
    value = parse_time(text)
    if value == 0:
        raise InputError(f"'{text}' must be more than nothing")
    return Fraction(value)


def _share(text: str) -> Fraction:
    """A share of packets; a number without a unit is refused unless it is 0."""
    if text == "0":
        return Fraction(0)
    match = _SHARE.fullmatch(text)
    if match is None:
        raise InputError(
            f"'{text}' is no share of packets: write a number and % or ppm, such as 0.1 %"
        )
    value = Fraction(match[1]) / _SHARE_UNITS[match[2]]
    if value > 1:
        raise InputError(f"'{text}' is more than all packets")
    return value


def _percentile(text: str) -> Fraction:
    match = _PERCENTILE.fullmatch(text)
    value = Fraction(match[1]) / 100 if match else Fraction(0)
    if match is None or not 0 < value < 1:
        hint = "; write max" if value == 1 else ""
        raise InputError(
            f"'{text}' is no percentile: write p and a number above 0 and below 100, such as "
            f"p99.999{hint}"
        )
    return value


def parse_percentile(text: str) -> Fraction:
    """A percentile such as ``p99.9``, or 1 for ``max``. Raises `InputError`."""
    return Fraction(1) if text == "max" else _percentile(text)


#: What can be required, by name; a percentile's is its number. `judge.JUDGES` has a row for each.
QUANTITIES = {
    "percentile": Quantity("p99.999", UPPER, _time),
    "mean": Quantity("mean", UPPER, _time),
    "max": Quantity("max", UPPER, _time),
    "reliability": Quantity("reliability(1 ms)", LOWER, _share, _time),
    "return_level": Quantity("return_level(24 h)", UPPER, _time, _time),
    "loss": Quantity("loss", NONE_OR_UPPER, _share),
    "errors": Quantity("errors", NONE_OR_UPPER, _share),
    "duplicates": Quantity("duplicates", NONE_OR_UPPER, _share),
    "reordered": Quantity("reordered", NONE_OR_UPPER, _share),
    "gap": Quantity("gap(p99.9)", UPPER, _time, parse_percentile),
    "blocked": Quantity("blocked(event)", UPPER, _time, named=True),
}


_URLLC = (
    "3GPP TR 38.913 clause 7.9 (success probability 1-10^-5 within 1 ms); "
    "Report ITU-R M.2410-0 clause 4.10"
)
_5QI = "3GPP TS 23.501 table 5.7.4-1, 5QI {}"
_5QI_READING = (
    "packet delay budget and packet error rate; late packets of a delay-critical flow count as "
    "lost (clause 5.7.3.4)"
)


def _profile(requirement: str, source: str, reading: str = "") -> ProfileRow:
    return ProfileRow(requirements=[requirement], source=source, reading=reading)


PROFILES = {
    "urllc-5g": _profile("reliability(1 ms) >= 99.999 %", _URLLC),
    "urllc-5g-six-nines": _profile(
        "reliability(1 ms) >= 99.9999 %",
        "Gallenmüller et al., How Low Can You Go?, section 1 (reliability up to six nines, "
        "latency as low as 1 ms)",
    ),
    "urllc-5g-strict": _profile(
        "reliability(0.5 ms) >= 99.999 %",
        "3GPP TR 38.913 clauses 7.5 (0.5 ms in each direction) and 7.9",
        "0.5 ms is the target of a mean there; here of 99.999 %",
    ),
    "5qi-82": _profile("reliability(10 ms) >= 99.99 %", _5QI.format(82), _5QI_READING),
    "5qi-83": _profile("reliability(10 ms) >= 99.99 %", _5QI.format(83), _5QI_READING),
    "5qi-84": _profile("reliability(30 ms) >= 99.999 %", _5QI.format(84), _5QI_READING),
    "5qi-85": _profile("reliability(5 ms) >= 99.999 %", _5QI.format(85), _5QI_READING),
    "5qi-86": _profile("reliability(5 ms) >= 99.99 %", _5QI.format(86), _5QI_READING),
    "motion-control": _profile(
        "reliability(500 us) >= 99.999 %",
        "3GPP TS 22.104 table 5.2-1, motion control, transfer interval 500 us",
        "the lower end of the availability that is asked for, of packets; a survival time is not "
        "granted",
    ),
    "fronthaul": ProfileRow(
        requirements=["max <= 100 us", "loss <= 0.1 ppm"],
        source="IEEE Std 802.1CM-2018 clauses 6.3.2.1 and 6.3.2.2 (high priority user plane data)",
        reading="",
    ),
}
