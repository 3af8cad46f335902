"""`tailtap clean`: undo what a crashed tailtap left changed on the machine."""

from __future__ import annotations

import click

from tailtap.cli.command import command


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
) -> None:
    """Undo what tailtap left changed on this machine, after a crash, a kill -9 or a reboot.

    Every tailtap keeps a journal of its changes. This command reads the journals of processes that
    have ended, newest change first. Cards, drivers, huge pages and settings become what they were
    before. A setting that somebody else has changed since then stays as it is, and is reported.
    Virtual machines, containers, namespaces and links of a run are removed, with the processes in
    them and the containers' control groups and mounts. Their names show that they are tailtap's:
    tt-, six hexadecimal digits and a part, such as tt-0a1b2c-dut. What a running tailtap uses is
    kept unless --all is given. Nothing else on the machine changes, and a second call finds nothing
    to do.

    What `tailtap host apply` has set stays, with --all too: `tailtap host revert` puts it back.

    Journals are in /var/lib/tailtap/journals, or in /run/tailtap where that cannot be written.
    """
    import json as json_module
    import sys

    from tailtap.machine import clean as library
    from tailtap.machine.privileges import require_root

    require_root()
    found = library.find()
    stays = {"kept"} if all_ else {"alive", "kept"}
    kept = [item for item in found if item.owner in stays]
    removed = [item for item in found if item not in kept]
    if not (json or quiet):
        verb = "would remove" if dry_run else "removing"
        for item in removed:
            used = f", in use by process {item.pid}" if item.owner == "alive" else ""
            print(f"{verb} {item.kind} {item.name}{used}", flush=True)
        for item in kept:
            why = (
                "`tailtap host revert` undoes it"
                if item.owner == "kept"
                else f"process {item.pid} uses it (--all removes it)"
            )
            print(f"kept {item.kind} {item.name}: {why}")
        if not found:
            print("nothing to remove")
    left = [] if dry_run else library.remove(removed)
    for sentence in left:
        print(f"tailtap: {sentence}", file=sys.stderr)
    if json:
        content = {
            "schema": "tailtap.clean/1",
            "dry_run": dry_run,
            "removed": [item.as_json() for item in removed],
            "kept": [item.as_json() for item in kept],
            "left": left,
        }
        print(json_module.dumps(content))
