"""What `tailtap run --check` found, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailtap.measure.check import Outlook

WIDTH = 100


def differences(differs: Sequence[str]) -> Iterator[str]:
    """The lines that say how an experiment differs from the one that it follows."""
    if differs:
        yield "this experiment differs from the one that it follows:"
        yield from (f"- {sentence}" for sentence in differs)


def print_outlook(outlook: Outlook) -> None:
    """Print the planned runs with the numbers of what was found, and below it what that is."""
    from rich.table import Table
    from rich.text import Text

    from tailtap.cli.console import print_table
    from tailtap.cli.drawing import print_networks

    for line in differences(outlook.differs):
        print(line)
    numbers: dict[str, int] = {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "possible", "see"):
        table.add_column(name, no_wrap=True)
    for run, findings in outlook.runs:
        said = [*findings.problems, *findings.notes]
        places = sorted({numbers.setdefault(text, len(numbers) + 1) for text in said})
        answer = Text("no", style="red") if findings.problems else Text("yes")
        table.add_row(run.slug, answer, ", ".join(map(str, places)))
    print_table(table)
    print_networks(run for run, _ in outlook.runs)
    remarks = Table(box=None, pad_edge=False, show_header=False)
    remarks.add_column(justify="right", no_wrap=True)
    remarks.add_column(overflow="fold")
    for text, number in numbers.items():
        remarks.add_row(str(number), Text(text))
    for text in (*outlook.whole.problems, *outlook.whole.notes):
        remarks.add_row("all", Text(text))
    if remarks.row_count:
        print()
        print_table(remarks, widest=WIDTH)
        print()
    minutes, stamps = outlook.seconds / 60, outlook.stamp_bytes / 1e6
    print(f"{len(outlook.runs)} runs: {minutes:.1f} min of traffic, {stamps:.1f} MB of stamps")
