"""`tailtap host audit`, `apply`, `revert`, `noise`: knobs judged, set, put back; idle cores."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.units import format_time, format_us, ranges
from tailtap.cli.command import CPUS, TIME, Answer, command, writes_into
from tailtap.cli.host import purpose_options, sentence
from tailtap.cli.terminal import say, unless, warn, warn_of

if TYPE_CHECKING:
    from tailtap.host.knobs.tree import Purpose, Tree
    from tailtap.records.causes import NoiseRecord
    from tailtap.records.printed import AuditRecord, AuditRow, RevertRecord


LOOKS = {"met": "good", "not-met": "alarm", "unknown": "unshown", "not-applicable": "present"}


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
    tree: Tree,
    purpose: Purpose,
    all_: bool,
    why: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Judge what on this machine adds tail latency: what it should be, why, and who says so.

    Nothing is changed, and no root is needed; what only root may read is unknown to others. A knob
    is met, not-met, unknown, or not-applicable. Exit status 1 when a knob is known to be other than
    it should be, else 0. What only the host of a virtual machine can mend is shown, and does not
    count.
    """

    from tailtap.host.tuning import apply as library

    found = library.audit(tree, purpose, names)
    return Answer(
        found,
        lambda: _print_audit(found, purpose, names, all_=all_, why=why, quiet=quiet),
        0 if found.met else 1,
    )


def _print_audit(
    found: AuditRecord,
    purpose: Purpose,
    names: tuple[str, ...],
    *,
    all_: bool,
    why: bool,
    quiet: bool,
) -> None:
    from tailtap.cli.console import print_table
    from tailtap.host.tuning.apply import ANSWERS
    from tailtap.show.sections import Cell, Column, Part, Row, Table, row

    shown = [one for one in found.rows if all_ or names or one.answer != "not-applicable"]
    explained = why or all_ or bool(names)
    columns = (
        Column(wrap=14),
        Column("answer"),
        Column("is", wrap=9),
        Column("should be", wrap=9),
        Column("set", spare=1),
        *((Column("why", wrap=20),) if explained else ()),
    )

    def judged(one: AuditRow) -> Row:
        how = one.settable if one.answer == "not-met" else ""
        source = f" ({one.source})" * (bool(why or names) and one.answer != "unknown")
        reasons = [one.why + source] if explained else []
        answer = Cell(one.answer, LOOKS[one.answer])
        return row(one.name, answer, one.value or "", one.wanted or "", how, *reasons)

    if not quiet:
        groups = groupby(shown, lambda one: one.group)
        parts = [Part(list(map(judged, rows)), group) for group, rows in groups]
        say(sentence(purpose))
        print_table(Table("", columns, parts))
    count = Counter(row.answer for row in found.rows)
    counts = ", ".join(f"{count[answer]} {answer}" for answer in ANSWERS if count[answer])
    theirs = [row.name for row in found.rows if row.answer == "not-met" and row.elsewhere]
    counts += f"; {', '.join(theirs)}: nothing on this machine can mend it" if theirs else ""
    more = [] if explained else ["--why explains them"]
    more += [] if len(shown) == len(found.rows) else ["--all lists what does not apply"]
    say(counts + (f" ({', '.join(more)})" if more and not quiet else ""))


@command(
    examples=(
        ("tailtap host apply --dry-run", "show what would be set"),
        (
            "tailtap host apply timers memory --cpus 2-5",
            "two groups, for a device on four cores",
        ),
    )
)
@purpose_options
@click.option("--dry-run", is_flag=True, help="Only say what would be set.")
@click.option(
    "--disruptive",
    is_flag=True,
    help="Also set what takes links down (never the default route's) or stops what runs.",
)
def apply(
    names: tuple[str, ...],
    tree: Tree,
    purpose: Purpose,
    dry_run: bool,
    disruptive: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Set the knobs that `tailtap host audit` finds not met, as far as the running kernel can.

    A knob that is only there to compare is set when named. When the machine refuses a value, all
    are put back. The tuning stays until `tailtap host revert` or a reboot. A second apply adds to
    the first.
    """

    from tailtap.host.facts.needs import require_superuser
    from tailtap.host.tuning.apply import apply as set_all
    from tailtap.host.tuning.apply import plan
    from tailtap.records.printed import ApplyRecord, Left

    steps = plan(tree, purpose, names, disruptive=disruptive)
    if not (json or quiet):
        say(sentence(purpose))
        verb = "would set" if dry_run else "setting"
        for change in steps.changes:
            row = change.row
            say(f"{verb} {row.name}: {row.before} to {row.to}", flush=True)
        for name, why in steps.left:
            say(f"left {name}: {why}")
    partly = []
    if not dry_run and steps.changes:
        require_superuser("setting the kernel's values")
        partly = [(row.name, row.value) for row in set_all(steps)]
    for name, value in partly:
        warn(
            f"tailtap: {name}: now {value}: the kernel does not let the others be changed, as it "
            "chose their CPUs itself; nothing is to be done about these",
        )
    record = ApplyRecord(
        dry_run=dry_run,
        changes=[change.row for change in steps.changes],
        met=list(steps.met),
        left=[Left(name=name, why=why) for name, why in steps.left],
        partly=[name for name, _ in partly],
    )
    count = len(steps.changes)
    done = f"{count} would be set" if dry_run else f"{count} set"
    undo = ": `tailtap host revert` puts them back" if count and not dry_run else ""
    told = f"{done}, {len(steps.met)} met already, {len(steps.left)} left{undo}"
    return Answer(record, lambda: say(told))


@command()
@click.option("--dry-run", is_flag=True, help="Only say what would be put back.")
def revert(dry_run: bool, json: bool, quiet: bool) -> Answer:
    """Put back all that `tailtap host apply` has set, newest first, also when it was killed.

    A value that somebody else has changed since is left, and named. After a reboot, files are put
    back, such as that of `tailtap host bootline --install`.
    """

    from tailtap.host.facts.needs import require_superuser
    from tailtap.host.tuning import apply as library
    from tailtap.records.printed import RevertRecord

    require_superuser("putting back the kernel's values")
    done = library.revert(dry_run=dry_run)
    record = RevertRecord(
        dry_run=dry_run,
        undone=list(done.undone),
        left=list(done.left),
        ended_by_reboot=list(done.ended),
    )
    return Answer(record, lambda: _print_reverted(record, quiet=quiet))


def _print_reverted(record: RevertRecord, *, quiet: bool) -> None:
    if not quiet:
        for label in record.undone:
            say(f"{'would put back' if record.dry_run else 'put back'} {label}")
        for label in record.ended_by_reboot:
            say(f"ended by the reboot {label}")
        if not (record.undone or record.left or record.ended_by_reboot):
            say("nothing to put back")
    for left in record.left:
        warn(f"tailtap: {left}")


MOST, PARTS = 15, 5
"""How many causes are printed, and of a gap how many of its parts."""


@command(
    examples=(
        ("sudo tailtap host noise --cpus 1", "one core, for ten seconds"),
        (
            "sudo tailtap host noise --cpus 2-5 --for 10min --above '5 us' --out results/first",
            "the floor that the report of these results shows",
        ),
    )
)
@click.option("--cpus", required=True, type=CPUS, help="The CPUs, '2-3,5'.")
@click.option(
    "--for",
    "--duration",
    "lasts",
    default="10 s",
    type=TIME,
    help="How long.",
)
@click.option(
    "--above",
    default="1 us",
    type=TIME,
    help="The core was taken if the loop did not run for longer than this.",
)
@writes_into("Also write noise.json there; in the folder of an experiment, its report shows it.")
def noise(
    cpus: list[int], lasts: int, above: int, out: Path | None, json: bool, quiet: bool
) -> Answer:
    """Measure what takes cores that nobody asks for anything, and name it.

    A loop on each CPU reads the clock; a gap between two reads is longer than --above. The tracer
    names what took it: a timer, an interrupt, a task; what the kernel knows nothing of was the
    hypervisor's or the firmware's.
    """

    from tailtap.base.files import write_json
    from tailtap.measure.noise import noise as watch
    from tailtap.records.causes import NOISE
    from tailtap.records.record import as_json

    unless(quiet)(f"noise: reading the clock on CPUs {ranges(cpus)} for {format_time(lasts)}")
    found = watch(cpus, lasts, above)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / NOISE, as_json(found), below=out)
    return Answer(found, lambda: _print_noise(found))


def _print_noise(found: NoiseRecord) -> None:
    from tailtap.cli.console import print_section
    from tailtap.show.sections.machine import noise_section

    print_section(noise_section(found))
    for gap in found.worst[:3]:
        parts = ", ".join(
            f"{part.cause}{f' ({part.detail})' if part.detail else ''} {format_us(part.ns)}"
            for part in gap.parts[:PARTS]
        )
        say(f"CPU {gap.cpu}, {format_us(gap.ns)} us: {parts}")
    warn_of(found.warnings)
