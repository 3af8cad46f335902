"""`tailtap host export`: write the table of knobs for programs that tune hosts."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.host import also_option, purpose_options
from tailtap.cli.terminal import warn

FORMATS = ("tuned", "sysctl", "ansible")
"""Those of `tailtap.host.tuning.exports`, spelled here as they take long to import."""


@command(
    computes=True,
    examples=(
        ("tailtap host export --format tuned --cpus 2-5", "print a profile of tuned"),
        (
            "tailtap host export --format ansible --out tasks.yaml memory timers",
            "write a task list for two groups",
        ),
    ),
)
@purpose_options
@click.option(
    "--format",
    "format_",
    required=True,
    metavar="FORMAT",
    type=click.Choice(FORMATS),
    help="tuned: a profile's tuned.conf. sysctl: a file for sysctl.d. ansible: a task list.",
)
@also_option
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="Where it goes; standard output when not given. Only an earlier export is replaced.",
)
def export(
    names: tuple[str, ...],
    role: str | None,
    cpus: str | None,
    housekeeping: str | None,
    interface: tuple[str, ...],
    format_: str,
    also: tuple[str, ...],
    out: Path | None,
    json: bool,
    quiet: bool,
) -> None:
    """Write what tunes a host like this one as a tuned profile, a sysctl file or Ansible tasks.

    The values are those of `tailtap host apply` and `tailtap host bootline` for the same options,
    each with the reason as a comment. Comments at the end name what such a file cannot set, what
    does not apply to this machine, and what takes links down. Nothing on this machine is changed.
    """

    from tailtap.base.errors import InputError
    from tailtap.base.files import named
    from tailtap.base.foreign import read_head
    from tailtap.base.writing import writing
    from tailtap.cli.host import machine
    from tailtap.host.tuning.exports import FORMATS as KNOWN
    from tailtap.host.tuning.exports import HEAD, content
    from tailtap.records.printed import HostExportRecord, Left
    from tailtap.records.record import printed

    tree, purpose = machine(role, cpus, housekeeping, interface)
    found = content(tree, purpose, names, also)
    made = KNOWN[format_](found)
    if out is not None:
        with writing(out, "name another file by --out"):
            if out.is_file() and HEAD.encode() not in read_head(out):
                raise InputError(f"--out: {out} is there, and is no export: name another file")
            with named(out) as file:
                file.write(made.text.encode())
    if json:
        record = HostExportRecord(
            format=format_,
            out=None if out is None else str(out),
            text=made.text,
            left=[Left(name=name, why=why) for name, why in made.left],
        )
        print(printed(record))
    elif out is None:
        print(made.text, end="")
    elif not quiet:
        done = {one.knob.name for one in found.settings} | {one.knob.name for one in found.words}
        count = len(done - dict(made.left).keys())
        warn(f"wrote {count} knobs to {out}, {len(made.left)} left")
