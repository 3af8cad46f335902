"""`tailtap doctor`: check what this machine can measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailtap.cli.command import Answer, command
from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.base.check import Check


@command()
def doctor(
    json: bool,
    quiet: bool,
) -> Answer:
    """Check what this machine can measure, and say what to install or change for the rest.

    Kernel features are tried: a small lab is built and removed, and a container of each kind is
    started. Only root can try most of them. It also tells whether others can write to the current
    folder, and so change results there. States: ok; poor, which works but harms measurements;
    missing, which matters only to who needs it; untested. The exit status is 0 when `tailtap run`
    can work here, and 3 when it cannot.
    """
    from tailtap import doctor as library
    from tailtap.results.exporters import EXPORTERS

    checks = library.examine({"exporters": EXPORTERS})
    able = library.can_run(checks)
    shown = () if quiet else checks
    return Answer(library.record(checks), lambda: print_checks(shown, able=able), 0 if able else 3)


def print_checks(checks: Sequence[Check], *, able: bool) -> None:
    """Print what was looked at, area by area, and the answer."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.machine import checks_table

    print_table(checks_table(checks))
    say("tailtap run can work here" if able else "tailtap run cannot work here: see above")
