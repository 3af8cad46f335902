"""What `tailtap run --check` found, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.measure.check import Outlook


def differences(differs: Sequence[str]) -> Iterator[str]:
    """The lines that say how an experiment differs from the one that it follows."""
    if differs:
        yield "this experiment differs from the one that it follows:"
        yield from (f"- {sentence}" for sentence in differs)


def print_outlook(outlook: Outlook) -> None:
    """Print the planned runs with the numbers of what was found, and below it what that is."""
    from tailtap.cli.console import Column, Table
    from tailtap.cli.drawing import print_networks

    for line in differences(outlook.differs):
        say(line)
    numbers: dict[str, int] = {}
    possible = "yes" if outlook.as_root else "as root"
    table = Table((Column("run", wrap=16), Column("possible"), Column("see", wrap=8)))
    for run, findings in outlook.runs:
        said = [*findings.problems, *findings.notes]
        places = sorted({numbers.setdefault(text, len(numbers) + 1) for text in said})
        answer = ("no", "red") if findings.problems else possible
        table.add(run.slug, answer, ", ".join(map(str, places)))
    table.print()
    print_networks(run for run, _ in outlook.runs)
    remarks = Table((Column(right=True), Column(wrap=24)))
    for text, number in numbers.items():
        remarks.add(str(number), text)
    whole = (*outlook.whole.problems, *outlook.whole.notes)
    for text in whole:
        remarks.add("all", text)
    if numbers or whole:
        say()
        remarks.print()
        say()
    minutes, stamps = outlook.seconds / 60, outlook.stamp_bytes / 1e6
    say(f"{len(outlook.runs)} runs: {minutes:.1f} min of traffic, {stamps:.1f} MB of stamps")
