"""Print how large the program is: what `make size` shows, and CI with it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python/tailtap"
LOOSE = re.compile(r"(dict|Mapping)\[str, Any\]")
USED = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+((?:crate|super|self)::[^;]+);", re.MULTILINE
)
LOADED = f"""
import sys
from tailtap.cli import main
sys.argv = ["tailtap", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
files = {{getattr(module, "__file__", None) or "" for module in sys.modules.values()}}
print(sum(file.startswith({str(PACKAGE)!r}) for file in files), file=sys.stderr)
"""


def python(folder: Path) -> Iterator[tuple[Path, str]]:
    """The Python files below a folder, and their text."""
    for path in sorted(folder.rglob("*.py")):
        yield path, path.read_text("utf-8")


def statements(folder: Path) -> int:
    """Python statements below a folder: those that no layout of lines changes."""
    return sum(
        isinstance(node, ast.stmt)
        for _, text in python(folder)
        for node in ast.walk(ast.parse(text))
    )


def lines(*patterns: str) -> int:
    """Lines of the files that these patterns name."""
    return sum(
        path.read_text("utf-8").count("\n") for pattern in patterns for path in ROOT.glob(pattern)
    )


def words(*patterns: str) -> int:
    """Words of these files."""
    return sum(
        len(path.read_text("utf-8").split()) for pattern in patterns for path in ROOT.glob(pattern)
    )


def loose() -> int:
    """Lines that say of a record no more than that it has keys."""
    return sum(
        bool(LOOSE.search(line)) for _, text in python(PACKAGE) for line in text.splitlines()
    )


def circles() -> int:
    """Groups of files in a crate of which each uses, over others, itself."""
    return sum(
        len(circles_of(crate)) for crate in sorted((ROOT / "crates").iterdir()) if crate.is_dir()
    )


def circles_of(crate: Path) -> list[list[str]]:
    """The circles of a crate, as names of modules. A module and what is inside it are no circle."""
    source = crate / "src"
    modules = {_module(path.relative_to(source)): path for path in source.rglob("*.rs")}
    uses = {
        name: {
            module
            for path in _used(modules[name].read_text("utf-8"), name)
            if (module := _longest(path, modules)) is not None and module != name
        }
        for name in modules
    }
    # A folder's own file names what is inside: what is inside may use what it defines.
    for name, used in uses.items():
        used -= {one for one in used if _inside(one, name)}
    return [sorted(group) for group in strong(uses) if len(group) > 1]


def _module(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return "::".join(["crate", *parts])


def _inside(one: str, other: str) -> bool:
    return one.startswith(f"{other}::")


def _used(text: str, module: str) -> Iterator[str]:
    """The paths that a module uses, from the crate on."""
    for found in USED.finditer(text.partition("#[cfg(test)]")[0]):
        for path in _leaves(re.sub(r"\s+", "", found[1])):
            parts = path.split("::")
            at = [] if parts[0] == "crate" else module.split("::")
            while parts and parts[0] in ("self", "super"):
                if parts.pop(0) == "super":
                    at.pop()
            yield "::".join([*at, *parts])


def _leaves(path: str) -> Iterator[str]:
    """`a::{b, c::{d}}` as `a::b` and `a::c::d`."""
    head, brace, rest = path.partition("{")
    if not brace:
        yield path
        return
    depth, start = 0, 0
    inner = rest[: rest.rindex("}")]
    for at, letter in enumerate(f"{inner},"):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            for leaf in _leaves(inner[start:at]):
                yield head + leaf
            start = at + 1


def _longest(path: str, modules: dict[str, Path]) -> str | None:
    while path and path not in modules:
        path = path.rpartition("::")[0]
    return path or None


def strong(uses: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components, by Tarjan (1972)."""
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = low[name] = len(numbers)
        stack.append(name)
        for other in uses[name]:
            if other not in numbers:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], numbers[other])
        if low[name] == numbers[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in uses:
        if name not in numbers:
            visit(name)
    return found


def loaded(folder: Path, *command: str) -> int:
    """How many modules of ours a command loads."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *command],
        check=False, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    return int(done.stderr.split()[-1])


def table() -> Iterator[tuple[str, int]]:
    """The numbers."""
    yield "statements in python/tailtap", statements(PACKAGE)
    yield "lines in python/tailtap", lines("python/tailtap/**/*.py")
    yield "files in python/tailtap", sum(1 for _ in python(PACKAGE))
    yield "lines of Rust in crates, with tests", lines("crates/**/*.rs")
    yield "lines with dict[str, Any] or Mapping[str, Any]", loose()
    yield "statements in tests", statements(ROOT / "tests")
    yield "words in docs, generated ones included", words("docs/**/*.md")
    yield "words of ARCHITECTURE.md", words("ARCHITECTURE.md")
    yield "words of CHANGELOG.md", words("CHANGELOG.md")
    yield "circles of files in a crate", circles()
    sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT)]
    from traced import write_two_causes

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_two_causes(folder / "made")
        check = str(ROOT / "examples/quickstart.yaml")
        yield "files that run --check loads", loaded(folder, "run", "--check", check)
        yield "files that explain loads", loaded(folder, "explain", "made")
        yield "files that report loads", loaded(folder, "report", "made")


if __name__ == "__main__":
    for what, number in table():
        print(f"{number:>9,}  {what}", flush=True)
