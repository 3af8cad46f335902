"""Values are compared by what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.units import cpu_mask, list_cpus, ranges
from tailtap.host.changes.kernel_values import Form, Wish, chosen, parse, same, summary, writable


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        ("always [madvise] never", "madvise", "choice"),
        ("none (full) lazy", "full", "choice"),
        ("00000000,0000000f", "f", "mask"),
        ("0", "00000000,00000000", "mask"),
        ("0-3,8", "0,1,2,3,8", "cpus"),
        ("0x10", "16", "number"),
        ("08", "8", "number"),
        ("Y", "1", "switch"),
        ("off", "N", "switch"),
        (" a  ", "a", "text"),
    ],
)
def test_the_same_value_in_two_ways(one: str, other: str, form: Form) -> None:
    assert same(one, other, form)
    assert same(other, one, form)


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        ("always madvise [never]", "madvise", "choice"),
        ("3", "1", "mask"),
        ("0-3", "0-4", "cpus"),
        ("what", "0", "number"),
        ("what", "Y", "switch"),
        ("3", "0-3", "text"),
    ],
)
def test_other_values(one: str, other: str, form: Form) -> None:
    assert not same(one, other, form)


@given(st.sets(st.integers(0, 511), min_size=1))
def test_a_set_of_cpus_is_the_same_however_it_is_written(cpus: set[int]) -> None:
    assert parse(cpu_mask(cpus), "mask") == parse(list_cpus(cpus), "cpus") == frozenset(cpus)
    assert same(ranges(tuple(cpus)), list_cpus(cpus), "cpus")


@pytest.mark.parametrize(
    ("wish", "text", "form", "holds"),
    [
        (Wish("3600", "at-least"), "3600", "number", True),
        (Wish("3600", "at-least"), "1", "number", False),
        (Wish("600", "at-least", also=("0",)), "0", "number", True),
        (Wish("1", "at-most"), "2", "number", False),
        (Wish("1", "at-most"), "-1", "number", True),
        (Wish("0-1", "within"), "1", "cpus", True),
        (Wish("0-1", "within"), "1-2", "cpus", False),
        (Wish("3", "within"), "2", "mask", True),
        (Wish("never"), "always [madvise] never", "choice", False),
    ],
)
def test_wishes(wish: Wish, text: str, form: Form, holds: bool) -> None:
    assert wish.holds(text, form) == holds


def test_a_wish_says_what_it_is() -> None:
    assert Wish("600", "at-least", also=("0",)).told("number") == "at least 600 or 0"
    assert Wish("c", "within").told("mask") == "within 2-3"
    with pytest.raises(ValueError, match="switch"):
        Wish("1").holds("perhaps", "switch")


def test_the_values_of_many_places_in_a_line() -> None:
    assert summary({"a": "always [never]", "b": "always [never]"}, "choice") == "never"
    assert summary({"a": "00000000,0000000f", "b": "0"}, "mask") == "0-3 (1), none (1)"
    assert summary({"a": "1", "b": "1", "c": "2"}) == "1 (2), 2 (1)"
    assert summary({str(n): str(n) for n in range(9)}).endswith("3 (1), 5 more")


def test_what_is_written_back_of_a_choice() -> None:
    assert writable("always [madvise] never", "choice") == chosen("[madvise]") == "madvise"
    assert writable("0-3", "cpus") == "0-3"
