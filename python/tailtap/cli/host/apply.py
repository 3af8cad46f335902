"""`tailtap host apply`: set what can be set while the machine runs."""

from __future__ import annotations

import click

from tailtap.cli.command import command
from tailtap.cli.host import purpose_options
from tailtap.cli.terminal import say, warn


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
    help="Also set what takes links down or stops what runs, but never the interface of the "
    "default route.",
)
def apply(
    names: tuple[str, ...],
    role: str | None,
    cpus: str | None,
    housekeeping: str | None,
    interface: tuple[str, ...],
    dry_run: bool,
    disruptive: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Set the knobs that `tailtap host audit` finds not met, as far as the running kernel can.

    All of them, or those that are named. A knob that is only there to compare is set when it is
    named itself. What is met is not touched. Each value is read back; when the machine refuses one,
    all are put back, and the message names it. The tuning stays until `tailtap host revert` or a
    reboot; `tailtap clean` leaves it. A second apply adds to the first.
    """

    from tailtap.cli.host import machine, sentence
    from tailtap.host.facts.needs import require_superuser
    from tailtap.host.tuning.apply import apply as set_all
    from tailtap.host.tuning.plan import plan
    from tailtap.records.printed import ApplyRecord, Left
    from tailtap.records.record import printed

    tree, purpose = machine(role, cpus, housekeeping, interface)
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
        partly = [(row.knob.name, row.value) for row in set_all(steps)]
    for name, value in partly:
        warn(
            f"tailtap: {name}: now {value}: the kernel does not let the others be changed, as it "
            "chose their CPUs itself; nothing is to be done about these",
        )
    if json:
        record = ApplyRecord(
            dry_run=dry_run,
            changes=[change.row for change in steps.changes],
            met=list(steps.met),
            left=[Left(name=name, why=why) for name, why in steps.left],
            partly=[name for name, _ in partly],
        )
        print(printed(record))
        return
    count = len(steps.changes)
    done = f"{count} would be set" if dry_run else f"{count} set"
    undo = ": `tailtap host revert` puts them back" if count and not dry_run else ""
    say(f"{done}, {len(steps.met)} met already, {len(steps.left)} left{undo}")
