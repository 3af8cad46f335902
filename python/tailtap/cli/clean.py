"""`tailtap clean`: remove what tailtap left on the machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet


def clean(
    all_: Annotated[
        bool,
        typer.Option("--all", help="Also remove what a running tailtap still uses; it will fail."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove every kernel object that tailtap left behind, after a crash or a kill -9.

    Virtual machines, containers, namespaces and links with a name that a run gives (tt-, six
    hexadecimal digits, and a part, as tt-0a1b2c-dut) are removed, with the processes in them and
    the containers' control groups and mounts, and so are the journals in /run/tailtap of processes
    that are gone. What belongs to a tailtap that still runs is kept unless --all is given. Nothing
    else on the machine is touched, and a second call finds nothing to do.
    """
    import json as json_module

    from tailtap.host import clean as library
    from tailtap.host.privileges import require_root

    require_root()
    found = library.find()
    kept = [] if all_ else [item for item in found if item.owner == "alive"]
    removed = [item for item in found if item not in kept]
    if not (json or quiet):
        verb = "would remove" if dry_run else "removing"
        for item in removed:
            used = f", in use by process {item.pid}" if item.owner == "alive" else ""
            print(f"{verb} {item.kind} {item.name}{used}", flush=True)
        for item in kept:
            print(f"kept {item.kind} {item.name}: process {item.pid} uses it (--all removes it)")
        if not found:
            print("nothing to remove")
    if not dry_run:
        library.remove(removed)
    if json:
        content = {
            "schema": "tailtap.clean/1",
            "dry_run": dry_run,
            "removed": [item.as_json() for item in removed],
            "kept": [item.as_json() for item in kept],
        }
        print(json_module.dumps(content))
