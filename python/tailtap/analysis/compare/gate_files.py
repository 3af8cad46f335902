"""A judged change as JUnit XML, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from tailtap.analysis.verdict.junit import printable, save
from tailtap.base.files import named
from tailtap.base.units import format_share, format_us
from tailtap.base.writing import writing
from tailtap.records.compare import GateAnswer, GateRecord, GateRow

MARKS: dict[GateAnswer, str] = {
    "worse": "❌ worse",
    "not shown": "❔ not shown",
    "no worse": "✅ no worse",
    "better": "✅ better",
}


def write_junit(found: GateRecord, file: Path) -> None:
    """Write a test suite with a case for each row. Raises `MachineError` when it cannot be written.

    What is worse failed; what is not shown is an error: nothing was found out.
    """
    whole = JUnitXml("tailtap compare")
    suite = TestSuite(printable(f"{found.new} against {found.base}"))
    suite.add_property("margin", format_share(found.margin))
    suite.add_property("alpha", f"{found.alpha:g}")
    suite.add_testcases([_case(row) for row in found.rows])
    whole.add_testsuite(suite)
    save(whole, file)


def _case(row: GateRow) -> TestCase:
    case = TestCase(
        printable(f"{row.percentile_text}, {row.load}"), classname=printable(row.configuration)
    )
    message = printable(f"{row.answer}: {row.reason}")
    if row.answer == "worse":
        case.result = [Failure(message, row.answer)]
    elif row.answer == "not shown":
        case.result = [Error(message, row.answer)]
    else:
        case.system_out = message
    return case


def write_markdown(found: GateRecord, file: Path) -> None:
    """Write a summary. Raises `MachineError` when it cannot be written."""
    with writing(file, "give another file by --markdown"), named(file) as draft:
        draft.write(markdown(found).encode())


def markdown(found: GateRecord) -> str:
    """The answer, a table of the rows, and what is doubtful."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: GateRecord) -> Iterator[str]:
    yield f"### Tail latency: {MARKS[found.answer]}"
    yield ""
    yield (
        f"{_cell(found.new)} against {_cell(found.base)}; worse means by more than "
        f"{format_share(found.margin)}."
    )
    yield ""
    yield "| configuration | load | at | before, us | after, us | ratio (95 %) | answer |"
    yield "|---|---|---|---:|---:|---|---|"
    for row in found.rows:
        ratio = "" if row.ratio is None else f"x{row.ratio:.2f}"
        if row.ratio_low is not None and row.ratio_high is not None:
            ratio += f" ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
        cells = (
            row.configuration, row.load, row.percentile_text, middle(row, "base"),
            middle(row, "new"), ratio, MARKS[row.answer],
        )  # fmt: skip
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""
    for row in found.rows:
        if row.answer in ("worse", "not shown"):
            yield f"- {_cell(row.configuration)}, {_cell(row.load)}: {row.answer}: {row.reason}"
    if found.warnings:
        yield ""
        yield f"<details><summary>{len(found.warnings)} warnings</summary>"
        yield ""
        yield from (f"- `{one.code}` {_cell(one.message)}" for one in found.warnings)
        yield ""
        yield "</details>"


def middle(row: GateRow, side: str) -> str:
    """The median of one side's runs in us, with their number."""
    values = [run.latency for run in (row.base if side == "base" else row.new)]
    known = sorted(value for value in values if value is not None)
    if len(known) < len(values) or not known:
        return "unknown"
    return f"{format_us(known[len(known) // 2])} of {len(known)}"


def _cell(text: str) -> str:
    """Text that steers no Markdown: names come from folders and files."""
    shown = printable(text)
    for letter in "\\`*_|<>[]#":
        shown = shown.replace(letter, f"\\{letter}")
    return shown
