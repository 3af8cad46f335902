"""Errors are values: class, place and facts are fields, also of what is read in Rust."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from captures import frame, pcap, stamps

import tailtap
from tailtap import _core
from tailtap.base.errors import (
    InputError,
    MachineError,
    NothingMatched,
    NotRead,
    OfAnotherKind,
    TailtapError,
    WrongPacket,
    WrongValue,
)
from tailtap.base.files import read_json


def test_a_caller_is_told_what_is_missing_and_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(NotRead) as missing:
        read_json(path)
    assert (missing.value.place, missing.value.errno) == (str(path), errno.ENOENT)
    path.write_text("{")
    with pytest.raises(OfAnotherKind) as damaged:
        read_json(path)
    assert (damaged.value.place, damaged.value.kind) == (str(path), "JSON file")
    assert str(damaged.value).startswith(f"{path}: this is no JSON file: ")


def _evaluated(path: Path) -> object:
    return tailtap.evaluate(path, path)


def _replayed(path: Path) -> object:
    return _core.recording(path, True)


def _stamped(path: Path) -> object:
    return _core.leaving(path, memoryview(b"").cast("q"))


def _traced(path: Path) -> object:
    return _core.Cores.read(path, [0], 1)


THREE = pcap([(number, frame(number)) for number in range(3)])
RAW_IP = 101


@pytest.mark.parametrize(
    ("read", "content", "kind", "facts"),
    [
        (_evaluated, None, NotRead, {"errno": errno.ENOENT}),
        (_evaluated, b"", OfAnotherKind, {"kind": "capture"}),
        (_evaluated, b"picture", OfAnotherKind, {"kind": "capture"}),
        (_evaluated, THREE[:20], OfAnotherKind, {"kind": "capture"}),
        (_evaluated, b"\x28\xb5\x2f\xfd", OfAnotherKind, {"kind": "capture"}),
        (_evaluated, pcap([], linktype=127), InputError, {}),
        (_evaluated, pcap([]), NothingMatched, {}),
        (_replayed, None, NotRead, {"errno": errno.ENOENT}),
        (_replayed, b"picture", OfAnotherKind, {"kind": "capture"}),
        (_replayed, THREE[:-5], WrongPacket, {"packet": 3}),
        (_replayed, pcap([(0, frame(0))] * 2, snap=50), WrongPacket, {"packet": 1}),
        (_replayed, pcap([(0, b"E" * 60)], linktype=RAW_IP), WrongPacket, {"packet": 1}),
        (_replayed, stamps([]), InputError, {}),
        (_replayed, pcap([]), InputError, {}),
        (_stamped, None, NotRead, {"errno": errno.ENOENT}),
        (_stamped, b"picture" * 10, OfAnotherKind, {"kind": "capture"}),
        (_traced, None, NotRead, {"errno": errno.ENOENT}),
        (_traced, b"picture" * 10, OfAnotherKind, {"kind": "trace"}),
    ],
)
def test_what_is_read_in_rust_is_the_place_of_its_errors(
    tmp_path: Path,
    read: Callable[[Path], object],
    content: bytes | None,
    kind: type[TailtapError],
    facts: Mapping[str, object],
) -> None:
    path = tmp_path / "read"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind) as told:
        read(path)
    error = told.value
    assert type(error) is kind
    assert {name: getattr(error, name) for name in facts} == facts
    assert error.place == str(path) and str(path) not in error.what
    assert str(error) == f"{path}: {error.what}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_wrong_value_says_what_was_given_for_what() -> None:
    told = WrongValue("--egress-ahead", "5", "give two times")
    assert str(told) == "--egress-ahead '5': give two times"
    assert (told.parameter, told.value) == ("--egress-ahead", "5")
    assert str(pickle.loads(pickle.dumps(told))) == str(told)


def test_places_go_from_the_outside_in(tmp_path: Path) -> None:
    error = MachineError("it is full", remedy="make room").at(tmp_path).at("host a")
    assert str(error) == f"host a: {tmp_path}: it is full: make room"
    assert isinstance(error, MachineError) and not isinstance(error, InputError)
