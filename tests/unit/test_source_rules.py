"""What the program's own source must not do, but for what is named here, and why.

- Files are made by `tailtap.base.files` alone, and those of strangers opened by
  `tailtap.base.foreign` alone.
- Sentences for a person are printed by `cli`, and by what is a program of its own.
- No code reads the text of an error back: who must tell errors apart asks for class and fields.
  Found are names bound by ``except … as NAME`` and what is called error or reason: their text may
  be printed and put into other texts, but not be searched, split or compared. What an error is
  about, and what was given for which parameter, are fields: texts that begin with these are found.
- Its folders depend on each other in one direction, as pyproject.toml says.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tailtap
from tailtap.base import errors
from tailtap.base.errors import TailtapError

PACKAGE = Path(tailtap.__file__).parent
Rule = Callable[[ast.AST], Iterator[tuple[int, str]]]
"""The lines of a module that break it, and what is there."""


def breaking(rule: Rule) -> dict[str, list[tuple[int, str]]]:
    """What breaks a rule in each file of the package that does."""
    every = {
        str(path.relative_to(PACKAGE)): list(rule(ast.parse(path.read_text("utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {name: rows for name, rows in every.items() if rows}


COPIES = {"copy", "copy2", "copyfile", "copytree", "move"}


def writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that make or change a file by its path."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(ast.Name("os"), "open"):
                if any(flag in ast.unparse(node) for flag in ("O_CREAT", "O_TRUNC")):
                    yield node.lineno, "os.open"
            case ast.Attribute(ast.Name("shutil"), name) if name in COPIES:
                yield node.lineno, name
            case ast.Attribute(ast.Name("formatter"), _):  # click's, of help texts
                continue
            case ast.Attribute(_, "write_text" | "write_bytes" | "touch" | "symlink_to" as name):
                yield node.lineno, name
            case ast.Attribute(ast.Name("tarfile" | "gzip" | "os"), _):
                continue
            case ast.Attribute(_, "open") | ast.Name("open"):
                place = int(isinstance(node.func, ast.Name))
                given = [one.value for one in node.keywords if one.arg == "mode"]
                mode = given or node.args[place : place + 1]
                texts = [one.value for one in mode if isinstance(one, ast.Constant)]
                if any(set("wax+") & set(str(one)) and len(str(one)) < 4 for one in texts):
                    yield node.lineno, "open"


READERS = {
    "pq": {"read_table", "read_pandas", "ParquetFile", "ParquetDataset", "read_metadata"},
    "np": {"memmap", "fromfile", "load", "loadtxt", "genfromtxt"},
}
"""Of these modules what reads files, given their paths."""


def reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that open a file by its path to read it."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("open" | "memmap" | "fromfile")):
                yield node.lineno, ast.unparse(node.func)
            case ast.Call(ast.Attribute(ast.Name("os"), "open")):
                if not any(flag in ast.unparse(node) for flag in ("O_CREAT", "O_WRONLY")):
                    yield node.lineno, "os.open"
            case ast.Call(ast.Attribute(ast.Name("shutil"), name)) if name.startswith("copy"):
                if name != "copyfileobj":
                    yield node.lineno, name
            case ast.Call(ast.Attribute(ast.Name("pq" | "np" as module), name)):
                if name in READERS[module]:
                    yield node.lineno, f"{module}.{name}"
            case ast.Call(ast.Attribute(ast.Name("tarfile" | "formatter"), _)):
                continue
            case ast.Call(ast.Attribute(_, "read_text" | "read_bytes" | "open" as name)):
                modes = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
                if name != "open" or not any(set("wax") & set(str(mode)) for mode in modes):
                    yield node.lineno, name


def prints(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that print, or write to a standard stream."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("print" as name)) | ast.Call(
                ast.Attribute(ast.Attribute(ast.Name("sys"), "stdout" | "stderr" as name), "write")
            ):
                yield node.lineno, name


SEARCHES = {
    *("startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix"),
    *("split", "rsplit", "find", "index", "count", "replace"),
    *("search", "match", "fullmatch", "sub", "findall"),
}
TEXTS = frozenset(("message", "reason", "args", "msg", "context", "problem"))
"""Attributes by which errors have their text."""
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


def searches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What reads the text of an error."""
    names = _names(tree)
    texts = _texts(tree, names)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                read = [left, *others]
            case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=arguments) if (
                attribute in SEARCHES and arguments  # split() alone makes one line of it
            ):
                read = [value, *arguments]
            case _:
                continue
        for one in read:
            if _is_text(one, names) or (isinstance(one, ast.Name) and one.id in texts):
                yield node.lineno, ast.unparse(one)


def placed(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What makes an error of ours of a text that begins with what it is about.

    Such a text is ``{path}: …``, ``{path}:{line}: …`` or ``{option("late")} {text!r}: …``.
    """
    for node in ast.walk(tree):
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
                    yield node.lineno, name


ALLOWED: dict[Rule, dict[str, str]] = {
    writes: {
        "base/files.py": "every way of making a file",
        "host/changes/journal.py": "a folder of root's own; a line is added to a journal, a lock",
        "lab/platforms/vm/guest_line.py": "below a private temporary folder",
        "lab/platforms/vm/kernels.py": "a lock in the cache, a folder of root's own",
        "remote/agent.py": "what an agent in a guest loads is little: a draft of its own, O_EXCL",
        "measure/testbed/image.py": "below a private temporary folder",
        "doctor/calibrating.py": "below a private temporary folder",
    },
    reads: {
        "base/foreign.py": "every way of opening a file of a stranger",
        "bmc/": "opens machines, no files",
        "host/": "the kernel's files, and folders of root's own",
        "lab/": "the kernel's files, and what a lab wrote for itself",
        "remote/": "what one end of a stream is told to send by the other one, as that user",
        "measure/testbed/": "keys, images and programs of the machine itself",
        "measure/observe/": "the kernel's files, and the folder that this process is filling",
        "measure/roles/": "the kernel's files",
        "measure/run.py": "opens stations, no files",
        "base/locks.py": "the kernel's files",
        "base/proc.py": "the kernel's files",
        "base/files.py": "folders, and what was written a moment ago, to be synchronised",
        "base/writing.py": "passwords: a file of its own kind, with a check of its own",
        "analysis/runs/folder.py": "the lock of a folder",
        "analysis/live/written.py": "captures that a tap of this process is writing",
        "analysis/evaluation/sources.py": "pipes that the user named",
        "analysis/evaluation/evaluate.py": "`Sources`",
        "analysis/evaluation/tables.py": "what `foreign.open_file` opened",
        "analysis/evaluation/transactions.py": "`Sources`",
        "analysis/tail/gpd.py": "a file of the package",
        "results/database.py": "a file of the package",
        "results/exporters/postgresql.py": "a file of the package",
        "show/live/server.py": "a file of the package",
        "show/report/page.py": "a file of the package",
        "show/reproduce/fetching.py": "web servers, no files",
        "cli/evaluate.py": "`Sources`",
    },
    prints: {
        "cli/": "sentences for a person",
        "measure/roles/here.py": "a station",
        "measure/testbed/lent.py": "the cards of a far host",
        "remote/guest.py": "stands here for a command in a guest",
        "remote/switch.py": "the switch of a guest's connections",
        "experiment/json_schema.py": "makes a page",
        "experiment/reference.py": "makes a page",
        "host/tuning/page.py": "makes a page",
        "records/schemas.py": "makes a page, and schemas",
    },
    searches: {
        "bmc/libvirt.py": "virsh's words are cleaned of its own `error:` and told as they are",
        "base/document.py": "PyYAML tells what is wrong in words alone",
        "base/duck.py": "DuckDB has no class for damage and locks",
        "base/writing.py": "libraries that write for us quote the system's words, without a number",
    },
    placed: {},
}
"""Files and folders of the package that may break a rule, and why."""


@pytest.mark.parametrize("rule", ALLOWED, ids=lambda rule: rule.__name__)
def test_only_what_is_named_breaks_a_rule(rule: Rule) -> None:
    others = breaking(rule)
    known = {name: [one for one in ALLOWED[rule] if name.startswith(one)] for name in others}
    assert {name: others[name] for name, by in known.items() if not by} == {}
    needless = set(ALLOWED[rule]) - {one for by in known.values() for one in by}
    assert not needless, "what nothing needs any more"


CAUGHT = "try:\n    f()\nexcept OSError as e:\n    x = "
BREAKS: dict[Rule, tuple[list[str], list[str]]] = {
    writes: (
        ["open('x', 'w')", "path.open('ab')", "path.open(mode='x')", "path.write_text('')",
         "path.write_bytes(b'')", "os.open(path, os.O_CREAT)", "shutil.copy2(a, b)", "path.touch()",
         "path.open('r+b')"],
        ["open('x')", "path.open('rb')", "formatter.open(kind, content=1)", "os.open(p, 0)"],
    ),
    reads: (
        ["open('x')", "path.open('rb')", "path.open(mode='rb')", "path.read_text()",
         "path.read_bytes()", "os.open(path, os.O_RDONLY)", "pq.read_table(path)",
         "pq.ParquetFile(path)", "np.memmap(path)", "np.fromfile(path)", "shutil.copy(a, b)",
         "shutil.copytree(a, b)"],
        ["path.open('wb')", "os.open(p, os.O_CREAT)", "pq.write_table(t, f)", "read_bytes(p)"],
    ),
    prints: (["print(1)", "sys.stderr.write('')"], ["log.info('')"]),
    searches: (
        [f"{CAUGHT}{read}" for read in
         ("'no answer' in str(e)", "'no answer' not in e.reason", "e.args[0] == 'x'",
          "str(e).startswith('x')", "str(e).partition(':')[0]", "re.sub('x', '', str(e))",
          "e.message.removesuffix('x')")],
        [f"{CAUGHT}e.errno == 2", f"{CAUGHT}MachineError(f'{{name}}: {{e}}')"],
    ),
    placed: (
        ["InputError(f'{path}: this is empty')", "InputError(f'{path}:{line}: this is empty')",
         "InputError(f'{option(name)} {text!r}: too much')",
         "MachineError(f'{path}: this is empty')"],
        ["InputError('this is empty').at(path)", "InputError(f'{count} packets: too few')",
         "ValueError(f'{path}: this is empty')"],
    ),
}  # fmt: skip
"""Sources that break each rule, and some that do not."""


@pytest.mark.parametrize("rule", ALLOWED, ids=lambda rule: rule.__name__)
def test_a_rule_sees_what_breaks_it_and_nothing_else(rule: Rule) -> None:
    assert [any(rule(ast.parse(source))) for source in BREAKS[rule][0]] == [True] * len(
        BREAKS[rule][0]
    )
    assert not [source for source in BREAKS[rule][1] if any(rule(ast.parse(source)))]


PROJECT = Path(__file__).parents[2]
PROGRAM = PROJECT / "python/tailtap"
LINTER = Path(sys.executable).with_name("lint-imports")
WRONG = {
    "base/units.py": "from tailtap.cli import console",
    "analysis/runs/run.py": "from tailtap.show import report",
    "show/report/page.py": "from tailtap.host.facts import machine",
    "host/net/nic.py": "from tailtap.analysis import clocks",
    "lab/topology/graph.py": "from tailtap.lab import instruments",
    "measure/roles/dut.py": "from tailtap.measure import runner",
    "analysis/clocks/host.py": "from tailtap.analysis import compare",
    "results/tables.py": "from tailtap.show import report",
}
"""An import for each contract that it breaks."""


@pytest.mark.parametrize("file", WRONG)
def test_an_arrow_back_up_is_found(file: str, tmp_path: Path) -> None:
    shutil.copytree(PROGRAM, tmp_path / "tailtap", ignore=shutil.ignore_patterns("*.so"))
    with (tmp_path / "tailtap" / file).open("a", encoding="utf-8") as source:
        source.write(f"\n\ndef _wrong() -> None:\n    {WRONG[file]}\n")
    found = subprocess.run(
        [LINTER, "--no-cache", "--config", PROJECT / "pyproject.toml"], cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 1, found.stderr
    assert f"tailtap.{file.removesuffix('.py').replace('/', '.')}" in found.stdout


def test_the_table_of_folders_is_the_tree() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `python/tailtap/(\w+)/` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in PROGRAM.glob("*/__init__.py"))
