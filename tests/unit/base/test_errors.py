"""Errors are values: they are copied, pickled and told to another machine with class and fields."""

from __future__ import annotations

import json
import pickle

import pytest

from tailtap.base.errors import (
    Bug,
    InputError,
    InputErrors,
    MachineError,
    NotWritten,
    QuantityError,
    TailtapError,
    naming,
)
from tailtap.remote import CommandFailed, NoAnswer, ProgramMissing
from tailtap.remote.session import error_of, told

ERRORS = [
    InputError("a line"),
    MachineError("a line", place="x/y", remedy="make room"),
    InputErrors(["one", "two"]),
    QuantityError("'3' is no time", "3"),
    NotWritten("cannot write: full", place="x", remedy="make room"),
    CommandFailed(["ip", "link"], "no\nsuch"),
    NoAnswer(["ip", "link"], 2.5),
    ProgramMissing("xdp", "install it", host="namespace a"),
    Bug("a bug", "Traceback"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_it_was(error: TailtapError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    crossed = error_of(json.loads(json.dumps(told(error))), "the far end")
    for back in (copy, crossed):
        assert type(back) is type(error)
        assert back.exit_status == error.exit_status
        assert {**vars(back), "place": ""} == {**vars(error), "place": ""}
    assert str(copy) == str(error)
    assert str(crossed) == f"the far end: {error}"
    assert [f"the far end: {line}" for line in error.lines] == list(crossed.lines)


@pytest.mark.parametrize(
    ("status", "kind"), [(2, InputError), (3, MachineError), (70, Bug), (9, MachineError)]
)
def test_a_class_that_is_not_known_here_is_that_of_its_status(
    status: int, kind: type[TailtapError]
) -> None:
    fields = {"what": "a line", "place": "", "remedy": "", "told": ""}
    back = error_of({"kind": "Newer", "status": status, "fields": fields}, "far")
    assert (type(back), str(back)) == (kind, "far: a line")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "MachineError", "status": 3},
        {"kind": "MachineError", "status": 3, "fields": {"what": 5, "place": "", "remedy": ""}},
        {"kind": "NoAnswer", "status": 3, "fields": {"what": "", "place": "", "remedy": ""}},
    ],
)
def test_what_is_no_error_is_told(said: dict[str, object]) -> None:
    back = error_of(said, "far")
    assert type(back) is MachineError
    assert str(back).startswith("far: ")


def test_a_place_is_put_before_the_places_of_an_error() -> None:
    """Its class stays: who catches a `QuantityError` still does."""
    with (
        pytest.raises(QuantityError, match=r"^dut: rate: 'x' is no rate$"),
        naming("dut"),
        naming("rate"),
    ):
        raise QuantityError("'x' is no rate", "x")


def test_another_place_helps_beside_what_helps_against_the_reason() -> None:
    plain = NotWritten("cannot write: no", place="x")
    full = NotWritten("cannot write: full", place="x", remedy="make room")
    assert str(plain.or_elsewhere("choose another --out")).endswith(": no: choose another --out")
    assert str(full.or_elsewhere("y")) == "x: cannot write: full: make room or y"
    assert str(full) == "x: cannot write: full: make room"
