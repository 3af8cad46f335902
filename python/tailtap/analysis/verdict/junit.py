"""Verdicts and judged changes as JUnit XML, which continuous integration shows as test results.

A test suite is a configuration, a test case a requirement. What is violated failed; what is not
shown failed too or, where that is allowed, was skipped.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from tailtap.base.files import named
from tailtap.base.units import format_share
from tailtap.base.writing import writing
from tailtap.records.compare import GateRecord, GateRow
from tailtap.records.verdict import VerdictRecord, VerdictRow


def write_junit(verdict: VerdictRecord, file: Path, *, allow_not_shown: bool = False) -> None:
    """Write a verdict to `file`. Raises `MachineError` when it cannot be written."""
    whole = JUnitXml("tailtap verdict")
    for label, rows in itertools.groupby(verdict.verdicts, key=lambda row: row.configuration):
        suite = TestSuite(printable(label))
        suite.add_property("confidence", f"{verdict.confidence:g}")
        suite.add_testcases([_case(row, allow_not_shown) for row in rows])
        whole.add_testsuite(suite)
    save(whole, file)


def save(whole: JUnitXml, file: Path) -> None:
    """Write test suites to `file`. Raises `MachineError` when it cannot be written."""
    whole.update_statistics()
    with writing(file, "give another file by --junit"), named(file) as draft:
        whole.write(draft, pretty=True)


def _case(row: VerdictRow, allow_not_shown: bool) -> TestCase:
    case = TestCase(row.requirement, classname=printable(row.configuration))
    properties = Properties()
    facts = {"answer": row.answer, "decided by": row.decided_by, "reason": row.reason}
    if row.profile:
        facts["profile"] = row.profile
    for found in row.runs:
        facts[f"{found.run}: answer"] = found.answer
        for name, value in found.figures.items():
            facts[f"{found.run}: {name}"] = f"{value}"
        if found.doubts:
            facts[f"{found.run}: doubts"] = ", ".join(found.doubts)
    for name, value in facts.items():
        properties.add_property(Property(printable(name), printable(value)))
    case.append(properties)
    message = printable(f"{row.answer}: {row.decided_by}: {row.reason}")
    if row.answer == "not shown" and allow_not_shown:
        case.result = [Skipped(message, "not shown")]
    elif row.answer != "holds":
        case.result = [Failure(message, row.answer)]
    return case


def printable(text: str) -> str:
    """Text that XML can hold: names come from files, and control characters have no place in it."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def write_gate(found: GateRecord, file: Path) -> None:
    """Write a test suite with a case for each row. Raises `MachineError` when it cannot be written.

    What is worse failed; what is not shown is an error: nothing was found out.
    """
    whole = JUnitXml("tailtap compare")
    suite = TestSuite(printable(f"{found.new} against {found.base}"))
    suite.add_property("margin", format_share(found.margin))
    suite.add_property("alpha", f"{found.alpha:g}")
    suite.add_testcases([_case_of_row(row) for row in found.rows])
    whole.add_testsuite(suite)
    save(whole, file)


def _case_of_row(row: GateRow) -> TestCase:
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
