"""`tailtap host revert`: put back what `tailtap host apply` has set."""

from __future__ import annotations

import click

from tailtap.cli.command import command
from tailtap.cli.terminal import say, warn


@command()
@click.option("--dry-run", is_flag=True, help="Only say what would be put back.")
def revert(dry_run: bool, json: bool, quiet: bool) -> None:
    """Put back all that `tailtap host apply` has set, newest first, also when it was killed.

    A value that somebody else has changed in the meantime is left as it is, and named. A reboot
    has ended what was set while the machine ran: that is named, and files are put back, such as
    that of `tailtap host bootline --install`. A second call finds nothing to do.
    """

    from tailtap.host.facts.needs import require_superuser
    from tailtap.host.tuning import apply as library
    from tailtap.records.printed import RevertRecord
    from tailtap.records.record import printed

    require_superuser("putting back the kernel's values")
    done = library.revert(dry_run=dry_run)
    if json:
        record = RevertRecord(
            dry_run=dry_run,
            undone=list(done.undone),
            left=list(done.left),
            ended_by_reboot=list(done.ended),
        )
        print(printed(record))
        return
    verb = "would put back" if dry_run else "put back"
    if not quiet:
        for label in done.undone:
            say(f"{verb} {label}")
        for label in done.ended:
            say(f"ended by the reboot {label}")
        if not (done.undone or done.left or done.ended):
            say("nothing to put back")
    for sentence in done.left:
        warn(f"tailtap: {sentence}")
