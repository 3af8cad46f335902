"""`tailtap verdict`: say whether runs meet their requirements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap import library
from tailtap.base.errors import InputError
from tailtap.cli.command import (
    PATH,
    SHARE,
    Answer,
    command,
    known,
    selected_runs,
    undisturbed_latencies,
)
from tailtap.cli.terminal import now_and_then, steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailtap.records.verdict import VerdictRecord
    from tailtap.show.sections import Table


def _profiles() -> Iterable[str]:
    from tailtap.analysis.verdict.requirement import PROFILES

    return PROFILES


@command(
    computes=True,
    examples=(
        (
            "tailtap verdict results/first --require 'p99.9 < 1 ms' --require 'loss == 0'",
            "two requirements of one's own",
        ),
        (
            "tailtap verdict results/first --profile urllc-5g --junit verdict.xml",
            "a profile, for a CI system",
        ),
        (
            "tailtap verdict --list-profiles",
            "all profiles and their sources",
        ),
    ),
)
@click.argument(
    "folders",
    nargs=-1,
    type=PATH,
    metavar="RUN|DIR…",
    help="Run folders, experiment folders (then all their runs), or what `tailtap "
    "evaluate --out` or `tailtap import --into` wrote.",
)
@click.option(
    "--require",
    multiple=True,
    metavar="REQUIREMENT",
    help="What must hold, such as 'p99.999 < 1 ms'; may be repeated. By default, without "
    "--profile, the `require` of the experiment file.",
)
@click.option(
    "--profile",
    multiple=True,
    metavar="NAME",
    shell_complete=known(_profiles),
    help="The requirements of a standard, such as urllc-5g; may be repeated.",
)
@click.option(
    "--list-profiles",
    is_flag=True,
    help="Show all profiles and their sources.",
)
@selected_runs("Which runs are judged, as `tailtap report --runs` reads it.")
@click.option(
    "--confidence",
    default="95 %",
    type=SHARE,
    help="How sure 'holds' and 'violated' must be.",
)
@undisturbed_latencies
@click.option(
    "--junit",
    type=PATH,
    metavar="FILE",
    help="Also write JUnit XML.",
)
@click.option(
    "--allow-not-shown",
    is_flag=True,
    help="End with status 0 unless something is violated; JUnit XML then says skipped.",
)
def verdict(
    folders: tuple[Path, ...],
    require: tuple[str, ...],
    profile: tuple[str, ...],
    list_profiles: bool,
    runs: tuple[str, ...],
    confidence: float,
    undisturbed: bool,
    junit: Path | None,
    allow_not_shown: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Judge runs by requirements: each holds, is violated, or is not shown.

    Requirements: p99.999 < 1 ms (median, mean, max alike) of the packets that arrived;
    reliability(1 ms) >= 99.999 %, the share of all packets that arrived within 1 ms; loss == 0, or
    < 0.1 % (or ppm), and duplicates and reordered alike; return_level(24 h) < 1 ms, by the tail
    model; gap(p99.9) < 200 us or gap(max), between packets after the device.

    A requirement must hold in all repeats. docs/reference/verdict.md has the rules. Without
    --require, --profile and --runs, the claims of the experiment file are judged, too. The exit
    status is 0 when everything holds and 1 otherwise.
    """

    if list_profiles:
        from tailtap.analysis.verdict.requirement import PROFILES
        from tailtap.records.printed import ProfilesRecord

        return Answer(ProfilesRecord(profiles=PROFILES), _profiles_table)
    if not folders:
        raise InputError("give the folders to judge, or --list-profiles")
    if not 0.5 <= confidence < 1:
        raise InputError("--confidence: give at least 50 % and below 100 %, such as '95 %'")
    content = library.verdict(
        folders, [*require, *(f"profile {name}" for name in profile)], select=runs,
        confidence=confidence, undisturbed=undisturbed, junit=junit,
        allow_not_shown=allow_not_shown, progress=now_and_then(steps("verdict", quiet=quiet)),
    )  # fmt: skip
    from tailtap.show.sections.answers import verdict_parts

    status = exit_status(content, allow_not_shown=allow_not_shown)
    return Answer(content, lambda: verdict_parts(content), status)


def exit_status(found: VerdictRecord, *, allow_not_shown: bool = False) -> int:
    """0 when the answer is yes, 1 when it is no."""
    good = ("holds", "not shown") if allow_not_shown else ("holds",)
    return 0 if found.answer in good else 1


def _profiles_table() -> list[Table]:
    from tailtap.analysis.verdict.requirement import PROFILES
    from tailtap.show.sections import Column, row, table

    columns = Column("profile"), Column("requires", wrap=20), Column("source", wrap=24)
    rows = (
        row(name, ", ".join(one.requirements), one.source + f"; {one.reading}" * bool(one.reading))
        for name, one in PROFILES.items()
    )
    return [table("", columns, rows)]
