"""`tailtap verdict`: whether runs hold what is required of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from tailtap.verdict.runs import Verdict


def verdict(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN|DIR…",
            help="Run folders, experiment folders (then all their runs), or what `tailtap "
            "evaluate --out` or `tailtap import --into` wrote.",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REQUIREMENT",
            help="What must hold, such as 'p99.999 < 1 ms'. May be given several times; what the "
            "experiment file says under `require` when neither this nor --profile is given.",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The requirements of a standard, such as urllc-5g. May be given several times.",
        ),
    ] = None,
    list_profiles: Annotated[
        bool,
        typer.Option("--list-profiles", help="Show all profiles and what they are from."),
    ] = False,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTION",
            help="Which runs are judged, as `tailtap report --runs` reads it; all when not given. "
            "May be given again to add runs.",
        ),
    ] = None,
    confidence: Annotated[
        str,
        typer.Option(metavar="SHARE", help="How sure 'holds' and 'violated' must be."),
    ] = "95 %",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write JUnit XML: a test case a requirement."),
    ] = None,
    allow_not_shown: Annotated[
        bool,
        typer.Option(
            "--allow-not-shown",
            help="End with status 0 unless something is violated; JUnit XML then says skipped.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say whether runs hold what is required: it holds, it is violated, or it is not shown.

    Requirements: p99.999 < 1 ms (median, mean, max alike) of the packets that arrived;
    reliability(1 ms) >= 99.999 %, the share of all packets that arrived within 1 ms, which counts
    lost ones as late; loss == 0, or < 0.1 % (or ppm), and duplicates and reordered alike;
    return_level(24 h) < 1 ms, by the tail model; gap(p99.9) < 200 us or gap(max), between packets
    after the device. <= is as good as <.

    What is said of a share or a percentile holds for the device, with 95 % confidence: a run of
    too few packets does not show it, and then it is said how many more would. max, mean, and
    == 0 are about the run. Of runs that differ in nothing but the repeat all must hold: the worst
    one decides. Runs that failed or are invalid show nothing. docs/verdict.md tells the rules.

    The exit status is 0 when everything holds and 1 otherwise.
    """
    import json as json_module
    import sys

    from tailtap.errors import InputError
    from tailtap.verdict.junit import write_junit
    from tailtap.verdict.record import record
    from tailtap.verdict.requirement import parse_requirements
    from tailtap.verdict.runs import judge_runs

    if list_profiles:
        _print_profiles(json)
        return
    if not folders:
        raise InputError("give the folders to judge, or --list-profiles")

    def progress(run: str) -> None:
        if not quiet:
            print(f"verdict: {run}", file=sys.stderr)

    required = parse_requirements(
        [*(require or ()), *(f"profile {name}" for name in profile or ())]
    )
    found = judge_runs(
        folders, required, runs=runs or (), confidence=_confidence(confidence), progress=progress
    )
    if junit is not None:
        write_junit(found, junit, allow_not_shown=allow_not_shown)
    if json:
        print(json_module.dumps(record(found), allow_nan=False))
    else:
        print_verdict(found)
    raise typer.Exit(exit_status(found, allow_not_shown=allow_not_shown))


def exit_status(found: Verdict, *, allow_not_shown: bool = False) -> int:
    """0 when the answer is yes, 1 when it is no."""
    good = ("holds", "not shown") if allow_not_shown else ("holds",)
    return 0 if found.answer in good else 1


def print_verdict(found: Verdict) -> None:
    """Print all answers by configuration with their reasons, sources of profiles, and doubts."""
    import itertools

    from rich.table import Table
    from rich.text import Text

    from tailtap.cli.console import print_table
    from tailtap.verdict.runs import answers

    styles = {"holds": "green", "violated": "red", "not shown": "yellow"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("requirement", "answer", "measured", "why"):
        table.add_column(heading, no_wrap=True)
    for label, rows in itertools.groupby(found.rows, key=lambda row: row.configuration):
        table.add_row(Text(label, style="bold"))
        for row in rows:
            why = f"{row.worst.run}: {row.worst.reason}" if row.findings[1:] else row.worst.reason
            table.add_row(
                f"  {row.requirement.text}",
                Text(row.answer, style=styles[row.answer]),
                row.worst.measured,
                Text(why),
            )
    print_table(table)
    for profile in dict.fromkeys(row.requirement.profile for row in found.rows):
        if profile is not None:
            _print_source(profile)
    listed: dict[tuple[str, str], list[str]] = {}
    for run, warning in found.warnings:
        listed.setdefault((warning.code, warning.message), []).append(run)
    for (code, message), runs in listed.items():
        print(f"doubt: {', '.join(runs)}: {message} [{code}]")
    told = [f"{count} {answer}" for answer, count in answers(found.rows).items() if count]
    print(f"verdict: {found.answer} ({', '.join(told)})")


def _print_source(name: str) -> None:
    from tailtap.verdict.profiles import PROFILES

    row = PROFILES[name]
    reading = f"; {row.reading}" if row.reading else ""
    print(f"profile {name}: {row.source}{reading}")


def _print_profiles(as_json: bool) -> None:
    import json as json_module
    from dataclasses import asdict

    from rich.table import Table

    from tailtap.cli.console import print_table
    from tailtap.verdict.profiles import PROFILES

    if as_json:
        rows = {name: asdict(row) for name, row in PROFILES.items()}
        print(json_module.dumps({"schema": "tailtap.profiles/1", "profiles": rows}))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("profile", "requires", "source"):
        table.add_column(heading, no_wrap=True)
    for name, row in PROFILES.items():
        requires = ", ".join(row.requirements)
        table.add_row(name, requires, row.source + (f"; {row.reading}" if row.reading else ""))
    print_table(table)


def _confidence(text: str) -> float:
    from tailtap.errors import InputError

    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not text.strip().endswith("%") or not 0.5 <= value < 1:
        raise InputError(
            f"'{text}' is no confidence: give --confidence a percentage of at least 50 % and "
            "below 100 %, such as '95 %'"
        )
    return value
