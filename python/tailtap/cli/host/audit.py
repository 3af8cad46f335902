"""`tailtap host audit`: judge what on this machine adds tail latency."""

from __future__ import annotations

import sys

import click

from tailtap.cli.command import command
from tailtap.cli.host import purpose_options
from tailtap.cli.terminal import say

STYLES = {"met": "green", "not-met": "red", "unknown": "yellow", "not-applicable": "dim"}


@command(
    examples=(
        ("tailtap host audit", "judge all knobs for what this machine seems to be"),
        ("tailtap host audit --role container --cpus 2-5 --housekeeping 0-1", "say what it is for"),
        ("tailtap host audit memory stat-interval", "judge a group and a knob, and say why"),
    )
)
@purpose_options
@click.option("--all", "all_", is_flag=True, help="Also list what does not apply, and why.")
@click.option("--why", is_flag=True, help="Say what each knob does, and who says so.")
def audit(
    names: tuple[str, ...],
    role: str | None,
    cpus: str | None,
    housekeeping: str | None,
    interface: tuple[str, ...],
    all_: bool,
    why: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Judge what on this machine adds tail latency: what it should be, why, and who says so.

    Nothing is changed, and no root is needed; what only root may read is unknown to others. A knob
    is met, not-met, unknown, or not-applicable, which is decided by what is there, not by the
    kernel's version. Exit status 1 when a knob is known to be other than it should be, else 0. What
    only the host of a virtual machine can mend is shown, and does not count.
    """

    from tailtap.cli.console import Column, Table
    from tailtap.cli.host import machine, sentence
    from tailtap.host.tuning import audit as library
    from tailtap.records.record import printed

    tree, purpose = machine(role, cpus, housekeeping, interface)
    found = library.audit(tree, purpose, names)
    if json:
        print(printed(found.record))
        sys.exit(0 if found.met else 1)
    shown = [row for row in found.rows if all_ or names or row.answer != "not-applicable"]
    explained = why or all_ or bool(names)
    table = Table(
        (
            Column(wrap=14),
            Column("answer"),
            Column("is", wrap=9),
            Column("should be", wrap=9),
            Column("set", spare=1),
            *((Column("why", wrap=20),) if explained else ()),
        )
    )
    group = ""
    for row in shown:
        if row.knob.group != group:
            group = row.knob.group
            table.section(group)
        how = row.knob.settable if row.answer == "not-met" else ""
        cells = [row.value or "", row.wanted or "", how]
        if explained:
            source = "" if row.answer == "unknown" else f" ({row.knob.source})"
            cells.append(row.reason + (source if why or names else ""))
        table.add(f"  {row.knob.name}", (row.answer, STYLES[row.answer]), *cells)
    if not quiet:
        say(sentence(purpose))
        table.print()
    counts = ", ".join(
        f"{found.count(answer)} {answer}" for answer in library.ANSWERS if found.count(answer)
    )
    theirs = [row.knob.name for row in found.rows if row.answer == "not-met" and row.knob.elsewhere]
    counts += f"; {', '.join(theirs)}: nothing on this machine can mend it" if theirs else ""
    more = [] if explained else ["--why explains them"]
    more += [] if len(shown) == len(found.rows) else ["--all lists what does not apply"]
    say(counts + (f" ({', '.join(more)})" if more and not quiet else ""))
    sys.exit(0 if found.met else 1)
