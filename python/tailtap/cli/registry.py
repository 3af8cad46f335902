"""The subcommands, in the order in which `tailtap --help` lists them."""

from __future__ import annotations

import typer

from tailtap.cli import (
    clean,
    compare,
    doctor,
    evaluate,
    export,
    forward,
    generate,
    import_,
    model,
    report,
    run,
    search,
    tap,
    verdict,
    version,
)


def register_commands(app: typer.Typer) -> None:
    """Add every subcommand to `app`."""
    app.command("run")(run.run)
    app.command("search")(search.search)
    app.command("evaluate")(evaluate.evaluate)
    app.command("report")(report.report)
    app.command("model")(model.model)
    app.command("verdict")(verdict.verdict)
    app.command("compare")(compare.compare)
    app.command("export")(export.export)
    app.command("import")(import_.import_)
    app.command("doctor")(doctor.doctor)
    app.command("clean")(clean.clean)
    app.command("generate")(generate.generate)
    app.command("tap")(tap.tap)
    app.command("forward")(forward.forward)
    app.command("version")(version.version)
