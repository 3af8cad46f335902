"""No code reads the text of an error back: who must tell errors apart asks for class and fields.

Found are names bound by ``except … as NAME`` and what is called error or reason: their text may be
printed and put into other texts, but not be searched, split or compared. What an error is about,
and what was given for which parameter, are fields: texts that begin with these are found, too.
"""

from __future__ import annotations

import ast
import errno
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from captures import frame, pcap, stamps

import tailtap
from tailtap import _core
from tailtap.base import errors
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

SOURCES = Path(tailtap.__file__).parent
READERS = {
    *("startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix"),
    *("split", "rsplit", "find", "index", "count", "replace"),
    *("search", "match", "fullmatch", "sub", "findall"),
}
TEXTS = frozenset(("message", "reason", "args", "msg", "context", "problem"))
"""Attributes by which errors have their text."""
ALLOWED = {
    "bmc/libvirt.py": "virsh's words are cleaned of its own `error:` and told as they are",
    "base/document.py": "PyYAML tells what is wrong in words alone",
    "base/duck.py": "DuckDB has no class for damage and locks",
    "base/writing.py": "libraries that write for us quote the system's words, without a number",
}
OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TailtapError)
}


def _names(tree: ast.AST) -> set[str]:
    """Names of errors."""
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
    return {"error", "exception", *filter(None, caught)}


def _texts(tree: ast.AST, names: set[str]) -> set[str]:
    """Names that are given the text of an error."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=True))
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case _:
                continue
        for target, value in pairs:
            said = value.values[0] if isinstance(value, ast.BoolOp) else value
            if isinstance(target, ast.Name) and _is_text(said, names):
                found.add(target.id)
    return found


def _is_text(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is the text of an error."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in names
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return name in names and attribute in TEXTS
        case ast.Subscript(value=inner):
            return _is_text(inner, names)
    return False


def readings(source: str) -> Iterator[int]:
    """The lines that read the text of an error."""
    tree = ast.parse(source)
    names = _names(tree)
    texts = _texts(tree, names)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                read = [left, *others]
            case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=arguments) if (
                attribute in READERS and arguments  # split() alone makes one line of it
            ):
                read = [value, *arguments]
            case _:
                continue
        if any(
            _is_text(one, names) or (isinstance(one, ast.Name) and one.id in texts) for one in read
        ):
            yield node.lineno


@pytest.mark.parametrize(
    "statement",
    [
        "'no answer' in str(e)",
        "'no answer' not in e.reason",
        "e.args[0] == 'x'",
        "str(e).startswith('x')",
        "str(e).partition(':')[0]",
        "re.sub('x', '', str(e))",
        "e.message.removesuffix('x')",
    ],
)
def test_readings_are_found(statement: str) -> None:
    assert list(readings(f"try:\n    f()\nexcept OSError as e:\n    x = {statement}\n")) == [4]


def test_texts_that_are_printed_are_no_readings() -> None:
    said = "try:\n    f()\nexcept OSError as e:\n    raise MachineError(f'{name}: {e}')\n"
    assert not list(readings(said + "    x = e.errno == 2\n"))


def test_nobody_reads_the_text_of_an_error() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if (lines := list(readings(path.read_text())))
    }
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) == set(found), "an exception that nothing needs any more"


def placed(source: str) -> Iterator[int]:
    """The lines that make an error of ours of a text that begins with what it is about.

    Such a text is ``{path}: …``, ``{path}:{line}: …`` or ``{option("late")} {text!r}: …``.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id=name),
                args=[ast.JoinedStr(values=[ast.FormattedValue() as what, *rest]), *_],
            ) if name in OURS:
                told = "".join(str(getattr(one, "value", "")) for one in rest[:1])
                value = rest[2] if isinstance(what.value, ast.Call) and len(rest) > 2 else None
                given = told in (" ", " '") and str(getattr(value, "value", "")).startswith(
                    (": ", "': ")
                )
                if told.startswith(":") or given:
                    yield node.lineno


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        ("InputError(f'{path}: this is empty')", True),
        ("InputError(f'{path}:{line}: this is empty')", True),
        ("InputError(f'{option(name)} {text!r}: too much')", True),
        ("MachineError(f'{path}: this is empty')", True),
        ("InputError('this is empty').at(path)", False),
        ("InputError(f'{count} packets: too few')", False),
        ("ValueError(f'{path}: this is empty')", False),
    ],
)
def test_texts_that_begin_with_a_place_are_found(made: str, is_found: bool) -> None:
    assert bool(list(placed(f"raise {made}"))) == is_found


def test_what_an_error_is_about_is_a_field() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if (lines := list(placed(path.read_text())))
    }
    assert found == {}


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
