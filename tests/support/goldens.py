"""Stored outputs of commands: run, made the same everywhere, compared, and written anew."""

from __future__ import annotations

import base64
import contextlib
import difflib
import gzip
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from forms import SCHEMAS, fits
from program import in_process
from terminals import CONTROL, terminal

from tailtap import __version__

EXPECTED = Path(__file__).parents[1] / "golden/expected"
ACCEPT = "TAILTAP_ACCEPT"
COLUMNS = 100
DIGITS = 6
"""Of numbers that are no integers: the last digits of some depend on the machine's libm."""
MOST_ITEMS, KEPT_ITEMS = 12, 4
"""Of a longer list the first and the last items are stored, and a checksum of all."""
MOST_ROWS, FILE_ROWS, LONGEST = 30, 9, 300
"""The same for rows of tables, for lines of files, and for the characters of one."""
POINTS = 7
"""So many numbers of a figure's column are stored, and what all of them add up to."""
MACHINE = ("can_run", "problems", "as_root", "notes", "free_bytes")
"""What a plan says of the machine at hand."""
PALETTES = ("causes", "curves")
"""Colours of a page."""


@dataclass
class Story:
    """Commands on one folder, one after the other, and what they said: files by their names."""

    name: str
    folder: Path
    said: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, *words: str | Path, as_json: bool = False) -> None:
        """Keep what a command says on a terminal, or with ``--json`` its object, too."""
        self.said[name] = self._ran(*words, "--quiet")
        if as_json:
            self.said[f"{name}.json"] = self._ran(*words, "--json", "--quiet")

    def json(self, name: str, *words: str | Path) -> None:
        self.said[f"{name}.json"] = self._ran(*words, "--json", "--quiet")

    def plan(self, name: str, path: str) -> None:
        """Keep what an experiment file plans, without what this machine says to it."""
        _, out, error = ran(self.folder, "run", path, "--check", "--json", "--quiet")
        content = json.loads(out) if out else {}
        for one in (content, *content.get("runs", ())):
            for key in MACHINE:
                one.pop(key, None)
        self.said[f"plan {name}.json"] = self._same(json_text(content) if content else error)

    def page(self, name: str, path: str | Path) -> None:
        text = (self.folder / path).read_text("utf-8").replace(f"{self.folder}/", "")
        self.said[f"{name}.page"] = self._same(page_text(text))
        figures = figure_numbers(text)
        if figures:
            self.said[f"{name}.figures"] = self._same(figures)

    def files(self, name: str, folder: str | Path, shown: str = "*") -> None:
        """Keep the names of all files below a folder, and of some that are text the content."""
        top = self.folder / folder
        parts = []
        for path in sorted(top.rglob("*")):
            if path.is_file():
                parts.append(f"== {path.relative_to(top)}")
                parts += _content(path, f"{self.folder}/") if path.match(shown) else []
        self.said[f"{name}.files"] = self._same("\n".join(parts))

    def check(self) -> None:
        """Compare with what is stored, and what was written with its schemas.

        Raises `AssertionError` with a unified diff.
        """
        for path in self.folder.rglob("*.json"):
            with contextlib.suppress(ValueError):  # some are damaged on purpose
                written = json.loads(path.read_bytes())
                if isinstance(written, dict) and written.get("schema") in SCHEMAS:
                    fits(written)
        folder = EXPECTED / self.name
        said = {name: f"{text.strip()}\n" for name, text in self.said.items()}
        if ACCEPT in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name, text in said.items():
                (folder / f"{name}.txt").write_text(text, "utf-8")
            return
        stored = {path.stem: path.read_text("utf-8") for path in folder.glob("*.txt")}
        differences = [
            line
            for name in sorted(said.keys() | stored.keys())
            for line in difflib.unified_diff(
                stored.get(name, "").splitlines(),
                said.get(name, "").splitlines(),
                f"expected/{self.name}/{name}.txt",
                "now",
                lineterm="",
                n=2,
            )
        ]
        assert not differences, "\n".join(
            [f"other than stored ({ACCEPT}=1 writes it anew):", *differences]
        )

    def _ran(self, *words: str | Path) -> str:
        status, out, error = ran(self.folder, *words)
        assert "--json" in words or all(len(line) <= COLUMNS for line in out.splitlines()), out
        if "--json" in words and out.startswith("{"):
            content = json.loads(out)
            if content.get("schema") in SCHEMAS:
                fits(content)
            out = json_text(content)
        shown = shlex.join(str(word) for word in words if word != "--quiet")
        parts = [f"$ tailtap {shown}", *([f"(exit status {status})"] if status else []), out]
        return self._same("\n".join([*parts, *(["--- stderr", error] if error else [])]))

    def _same(self, text: str) -> str:
        """The text without what another folder, version or library would change."""
        text = text.replace(f"{self.folder}/", "").replace(str(self.folder), "FOLDER")
        text = re.sub(rf"(?<![\d.]){re.escape(__version__)}(?!\.?\d)", "VERSION", text)
        text = re.sub(r'"bytes": \d{5,}', '"bytes": "many"', text)  # of a page: the library's
        text = re.sub(r'"[0-9a-f]{32}"', '"CHECKSUM"', text)  # of files that name their folder
        return _LONG.sub(lambda found: f"{rounded(float(found[0])):g}", text)


def ran(folder: Path, *words: str | Path) -> tuple[int, str, str]:
    """Exit status of `tailtap` in a folder, what it shows on a terminal, and its standard error."""
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"TERM": "xterm-256color", "TZ": "UTC"}),
        terminal(COLUMNS) as (stream, written),
    ):
        os.environ.pop("COLUMNS", None)
        done = in_process(*words, stdout=stream)
        stream.flush()
    lines = CONTROL.sub("", b"".join(written).decode()).replace("\r\n", "\n")
    return done.returncode, lines.rstrip(), done.stderr.rstrip()


def json_text(content: Any) -> str:
    """JSON to read: what fits into a line stands in one, and long lists are cut."""
    return "\n".join(_lines(_cut(content), 0))


def _cut(content: Any) -> Any:
    if isinstance(content, float):
        return rounded(content)
    if isinstance(content, dict):
        return {key: _cut(content[key]) for key in sorted(content)}
    if not isinstance(content, list):
        return content
    items = [_cut(item) for item in content]
    if len(items) <= MOST_ITEMS:
        return items
    checksum = digest(json.dumps(items))
    return [*items[:KEPT_ITEMS], f"… {len(items)} items, checksum {checksum} …", items[-1]]


def _lines(content: Any, indent: int) -> Iterator[str]:
    space = "  " * indent
    whole = json.dumps(content, ensure_ascii=False)
    if len(space) + len(whole) <= COLUMNS or not isinstance(content, dict | list) or not content:
        yield space + whole
        return
    if isinstance(content, list):
        yield f"{space}["
        for item in content:
            yield from _lines(item, indent + 1)
        yield f"{space}]"
        return
    yield f"{space}{{"
    for key, value in content.items():
        first, *rest = _lines(value, indent + 1)
        yield f"{space}  {json.dumps(key)}: {first.lstrip()}"
        yield from rest
    yield f"{space}}}"


def rounded(number: float) -> float:
    """A number with as many digits as are the same everywhere."""
    return float(f"{number:.{DIGITS}g}")


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _content(path: Path, home: str) -> Sequence[str]:
    if path.suffix in (".svg", ".html"):
        return ()
    try:
        text = path.read_text("utf-8").replace(home, "")
    except UnicodeDecodeError:
        return ()
    if path.suffix == ".json":
        return [json_text(json.loads(text))]
    return [_shortened(line) for line in cut(text.splitlines(), FILE_ROWS)]


def _shortened(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    return f"{line[:LONGEST]}… {len(line)} characters, checksum {digest(line)}"


def cut(lines: Sequence[str], most: int = MOST_ROWS) -> Sequence[str]:
    """The first and last of many lines, and a checksum of all."""
    if len(lines) <= most:
        return lines
    checksum = digest("\n".join(lines))
    return [*lines[: most // 3], f"… {len(lines)} lines, checksum {checksum} …", *lines[-2:]]


_LONG = re.compile(r"\b\d+\.\d{8,}(e[+-]?\d+)?")
_SENTENCE = re.compile(r"(?<=[.:;]) (?=[A-Z])")


class _Page(HTMLParser):
    """The text of a page: a line for each heading, sentence and row of a table."""

    SILENT = ("script", "style", "head")
    LINES = ("p", "li", "h1", "h2", "h3", "h4", "figcaption", "summary", "caption", "dt", "dd",
             "tr", "label", "button", "option", "legend", "text", "title", "div", "section",
             "br")  # fmt: skip
    CELLS = ("td", "th")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.rows: list[str] = []
        self.now: list[str] = []
        self.silent = 0
        self.hints: dict[str, None] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.SILENT:
            self.silent += 1
        if tag in self.LINES and not (self.now and self.now[-1] == "| "):
            self._end()
        if tag in self.CELLS:
            self.now.append("| ")
        if tag in ("h1", "h2", "h3", "h4"):
            self.now.append("#" * int(tag[1]) + " ")
        for name, value in attrs:
            if name in ("title", "aria-label", "alt") and value:
                self.hints[_blanks(value)] = None

    def handle_endtag(self, tag: str) -> None:
        if tag in self.SILENT:
            self.silent -= 1
        if tag == "tr":
            self._end(row=True)
        elif tag == "table":
            self.lines += cut(self.rows)
            self.rows = []
        elif tag in self.LINES and not any(part == "| " for part in self.now):
            self._end()

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.now.append(data)

    def _end(self, *, row: bool = False) -> None:
        if row or not any(part == "| " for part in self.now):
            text = _blanks("".join(self.now))
            if row and text.strip("| "):
                self.rows.append(text)
            elif text:
                self.lines += _SENTENCE.split(text)
            self.now = []


def _blanks(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def page_text(page: str) -> str:
    reader = _Page()
    reader.feed(page)
    reader.close()
    return "\n".join([*reader.lines, "", "hints:", *sorted(reader.hints)])


def figure_numbers(page: str) -> str:
    """What the figures of a page draw: each one's axes, and of each column a few numbers."""
    packed = re.search(r'id="payload">([^<]*)<', page)
    if packed is None:
        return ""
    payload = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    lines = []
    for number, root in enumerate(payload.pop("document")["roots"], 1):
        labels = [found["axis_label"] for found in _attributes(root) if found.get("axis_label")]
        lines.append(f"figure {number}: {', '.join(labels)}")
        sources = [
            found["data"]["entries"]
            for found in _attributes(root)
            if isinstance(found.get("data"), dict) and "entries" in found["data"]
        ]
        for place, source in enumerate(sources, 1):
            points = {name: _points(column) for name, column in source}
            lines += [f"  {place} {name}: {said}" for name, said in points.items() if said]
    rest = {key: payload[key] for key in sorted(payload) if key not in ("roots", *PALETTES)}
    return "\n".join([*lines, json_text(rest)])


def _attributes(content: Any) -> Iterator[dict[str, Any]]:
    """The attributes of all models of a document, in their order."""
    if isinstance(content, dict):
        if isinstance(content.get("attributes"), dict):
            yield content["attributes"]
        for value in content.values():
            yield from _attributes(value)
    elif isinstance(content, list):
        for value in content:
            yield from _attributes(value)


def _points(column: Any) -> str:
    values: Sequence[Any] = column if isinstance(column, list) else _array(column)
    if len(values) == 0:
        return ""
    every = sorted({round(at * (len(values) - 1) / (POINTS - 1)) for at in range(POINTS)})
    some = ", ".join(_value(values[at]) for at in every)
    if all(isinstance(value, int | float | np.number) for value in values):
        return f"{len(values)}: {some}; sum {_value(float(np.nansum(values)))}"
    return f"{len(values)}: {some}"


def _value(value: Any) -> str:
    if isinstance(value, int | float | np.number):
        return f"{float(value):.{DIGITS}g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _points(value)


def _array(column: dict[str, Any]) -> Sequence[Any]:
    """The numbers of a column as Bokeh writes it."""
    array = column.get("array", column.get("entries", []))
    if isinstance(array, list):
        return array
    data = base64.b64decode(array["data"])
    numbers: list[Any] = np.frombuffer(gunzipped(data), np.dtype(column["dtype"])).tolist()
    return numbers


def gunzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
