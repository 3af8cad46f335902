"""`tailtap doctor`: check what this machine can measure."""

from __future__ import annotations

import sys

from tailtap.cli.command import command

TABLE_WIDTH = 110


@command()
def doctor(
    json: bool,
    quiet: bool,
) -> None:
    """Check what this machine can measure, and say what to install or change for the rest.

    Kernel features are tried: a small lab is built and removed. Only root can try most of them.
    States: ok; poor, which works but harms measurements; missing; untested. The exit status is 0
    when `tailtap run` can work here, and 3 when it cannot.
    """
    import json as json_module

    from rich.table import Table
    from rich.text import Text

    from tailtap import doctor as library
    from tailtap.cli.console import print_table
    from tailtap.store.exporters import EXPORTERS

    checks = library.examine({"exporters": EXPORTERS})
    able = library.can_run(checks)
    if json:
        print(json_module.dumps(library.as_json(checks)))
        sys.exit(0 if able else 3)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "state", "found", "what to do"):
        table.add_column(name, overflow="fold")
    styles = {"ok": "green", "poor": "yellow", "missing": "red", "untested": "yellow"}
    area = ""
    for check in checks:
        if check.area != area:
            area = check.area
            table.add_row(area, style="bold")
        state = f"{check.state}, needed" if check.required and check.state != "ok" else check.state
        cells = (Text(check.found), Text(check.remedy))
        table.add_row(f"  {check.name}", Text(state, style=styles[check.state]), *cells)
    if not quiet:
        print_table(table, widest=TABLE_WIDTH)
    print("tailtap run can work here" if able else "tailtap run cannot work here: see above")
    sys.exit(0 if able else 3)
