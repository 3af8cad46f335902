"""`tailtap verdict`: say whether runs meet their requirements."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap import library
from tailtap.base.errors import InputError
from tailtap.cli.command import PATH, SHARE, Answer, command
from tailtap.cli.options import known, selected_runs, undisturbed_latencies
from tailtap.cli.terminal import say, steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtap.records.verdict import ClaimRow, VerdictRecord


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

        return Answer(ProfilesRecord(profiles=PROFILES), _print_profiles)
    if not folders:
        raise InputError("give the folders to judge, or --list-profiles")
    if not 0.5 <= confidence < 1:
        raise InputError("--confidence: give at least 50 % and below 100 %, such as '95 %'")
    content = library.verdict(
        folders, [*require, *(f"profile {name}" for name in profile)], select=runs,
        confidence=confidence, undisturbed=undisturbed, junit=junit,
        allow_not_shown=allow_not_shown, progress=steps("verdict", quiet=quiet),
    )  # fmt: skip
    status = exit_status(content, allow_not_shown=allow_not_shown)
    return Answer(content, lambda: print_verdict(content), status)


def exit_status(found: VerdictRecord, *, allow_not_shown: bool = False) -> int:
    """0 when the answer is yes, 1 when it is no."""
    good = ("holds", "not shown") if allow_not_shown else ("holds",)
    return 0 if found.answer in good else 1


def print_verdict(found: VerdictRecord) -> None:
    """Print the object of ``--json``: answers with their reasons, profiles' sources, warnings."""
    from tailtap.cli.console import print_table
    from tailtap.records.record import Notice
    from tailtap.records.warnings import FEW, by_kind
    from tailtap.show.sections.answers import verdict_table

    if not found.verdicts:  # there are claims alone
        print_claims(found.claims)
        say(f"claims: {_counted(row.answer for row in found.claims)}")
        return
    print_table(verdict_table(found.verdicts))
    for profile in dict.fromkeys(row.profile for row in found.verdicts):
        if profile is not None:
            _print_source(profile)
    for kind in by_kind((Notice(one.code, one.message), one.run) for one in found.warnings):
        runs = kind.runs if len(kind.runs) <= FEW else [f"{len(kind.runs)} runs"]
        say(f"warning: {', '.join(runs)}: {kind.message} [{kind.code}]")
    print_claims(found.claims)
    told = [f"{count} {answer}" for answer, count in found.answers.items() if count]
    if found.claims:
        told[-1] += f"; claims: {_counted(row.answer for row in found.claims)}"
    of = " of undisturbed latencies" if found.undisturbed else ""
    say(f"verdict{of}: {found.answer} ({', '.join(told)})")


def print_claims(claims: Sequence[ClaimRow]) -> None:
    """Print what is shown of each claim, if there are any."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.answers import claims_table

    print_table(claims_table(claims))


def _counted(answers: Iterable[str]) -> str:
    counts = Counter(answers)
    return ", ".join(f"{count} {answer}" for answer, count in sorted(counts.items()))


def _print_source(name: str) -> None:
    from tailtap.analysis.verdict.requirement import PROFILES

    row = PROFILES[name]
    reading = f"; {row.reading}" if row.reading else ""
    say(f"profile {name}: {row.source}{reading}")


def _print_profiles() -> None:
    from tailtap.analysis.verdict.requirement import PROFILES
    from tailtap.cli.console import print_table
    from tailtap.show.sections import Column, row, table

    columns = Column("profile"), Column("requires", wrap=20), Column("source", wrap=24)
    rows = (
        row(name, ", ".join(one.requirements), one.source + f"; {one.reading}" * bool(one.reading))
        for name, one in PROFILES.items()
    )
    print_table(table("", columns, rows))
