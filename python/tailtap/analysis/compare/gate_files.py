"""A judged change as JUnit XML."""

from __future__ import annotations

from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from tailtap.analysis.verdict.junit import printable, save
from tailtap.base.units import format_share
from tailtap.records.compare import GateRecord, GateRow


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
