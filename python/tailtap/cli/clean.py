"""`tailtap clean`: undo what a crashed tailtap left changed on the machine."""

from __future__ import annotations

import click

from tailtap.cli.command import Answer, command
from tailtap.cli.terminal import say, warn


@command()
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="Also remove what a running tailtap uses, which then fails.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Remove nothing; show what would be removed.",
)
def clean(
    all_: bool,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Undo what tailtap left changed on this machine, after a crash, a kill -9 or a reboot.

    Every tailtap keeps a journal of its changes. This command reads the journals of processes that
    have ended, newest change first. Cards, drivers, huge pages and settings become what they were
    before. A setting that somebody else has changed since then stays as it is, and is reported.
    Virtual machines, containers, namespaces and links of a run are removed, with the processes in
    them and the containers' control groups and mounts. Their names show that they are tailtap's:
    tt-, six hexadecimal digits and a part, such as tt-0a1b2c-dut. What a running tailtap uses is
    kept unless --all is given. Nothing else on the machine changes, and a second call finds nothing
    to do.

    A journal that says what this version does not know, such as a change of a plug-in that is not
    installed, stays and is named, also by later commands that change this machine.

    What `tailtap host apply` has set stays, with --all too: `tailtap host revert` puts it back.

    Journals are in /var/lib/tailtap/journals, or in /run/tailtap where that cannot be written.
    """

    from tailtap.host.changes import clean as library
    from tailtap.host.facts.needs import require_root
    from tailtap.records.printed import CleanRecord, LeftoverRow
    from tailtap.records.record import made

    require_root()
    found = library.find()
    stays = {"kept"} if all_ else {"alive", "kept"}
    kept = [item for item in found if item.owner in stays or item.stays]
    removed = [item for item in found if item not in kept]
    if not (json or quiet):
        verb = "would remove" if dry_run else "removing"
        for item in removed:
            used = f", in use by process {item.pid}" if item.owner == "alive" else ""
            say(f"{verb} {item.kind} {item.name}{used}", flush=True)
        for item in kept:
            if item.kind == "journal" and item.owner not in stays:
                continue  # said below
            if item.owner == "kept":
                why = "`tailtap host revert` undoes it"
            elif item.owner in stays:
                why = f"process {item.pid} uses it (--all removes it)"
            else:
                why = item.stays or ""
            say(f"kept {item.kind} {item.name}: {why}")
        if not found:
            say("nothing to remove")
    left = [] if dry_run else library.remove(removed)
    journals = [item for item in found if item.kind == "journal" and item.owner not in stays]
    left += [item.stays for item in journals if item.stays]
    for sentence in left:
        warn(f"tailtap: {sentence}")
    record = CleanRecord(
        dry_run=dry_run,
        removed=[made(item, LeftoverRow) for item in removed],
        kept=[made(item, LeftoverRow) for item in kept],
        left=left,
    )
    return Answer(record, lambda: None)
