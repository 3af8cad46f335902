"""`tailtap doctor`: what this machine can do."""

from __future__ import annotations

import typer

from tailtap.cli.options import Json, Quiet

TABLE_WIDTH = 110


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Say what this machine can measure, and what to install or change for the rest.

    Kernel features are tried, not looked up: a small lab is built and removed. As a user other
    than root most of that stays untested. States: ok; poor, which works but harms measurements;
    missing; untested. Exit status 0 when `tailtap run` can work here, 3 when not.
    """
    import json as json_module

    from rich.table import Table
    from rich.text import Text

    from tailtap import doctor as library
    from tailtap.cli.console import print_table

    checks = library.examine()
    able = library.can_run(checks)
    if json:
        print(json_module.dumps(library.as_json(checks)))
        raise typer.Exit(0 if able else 3)
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
    raise typer.Exit(0 if able else 3)
