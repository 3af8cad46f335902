"""`tailtap report`, `publish`, `reproduce`: a page of results, a site of them, these repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap import library
from tailtap.cli.command import PATH, SIZE, Answer, command, selected_runs, writes_into
from tailtap.cli.terminal import say, say_whole, steps, warn

if TYPE_CHECKING:
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.boots import Boots
    from tailtap.measure.roles import Stations
    from tailtap.records.site import Level, PublishRecord


@command(computes=True)
@click.argument(
    "folder",
    type=PATH,
    metavar="DIR",
    help="A folder that a command wrote by --out, or `tailtap import` by --into.",
)
@writes_into("The folder for the report; by default DIR/report.")
@selected_runs(
    "Which runs, own and imported: words with commas between them, all of which must fit a run."
)
@click.option(
    "--figures-from",
    type=PATH,
    metavar="FILE",
    help="A file with `figures` that are drawn in place of those of the experiment's own file.",
)
@click.option(
    "--print",
    "figures",
    is_flag=True,
    help="Also draw the figures for print, as PNG, SVG and PDF, with the data of `figures` as CSV.",
)
def report(
    folder: Path,
    out: Path | None,
    runs: tuple[str, ...],
    figures_from: Path | None,
    figures: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Write the report of an experiment as one page.

    The page (index.html) needs no network. It shows results, HDR diagrams, losses, the worst
    latencies over time, warnings and the environment; of a search, its result; of runs with a
    trace, why packets were late. Nothing is measured again.

    The experiment file's `figures` come first. Change them in DIR/experiment.yaml, or give another
    file by --figures-from.

    Imported runs are marked. Tables show all runs, figures eight. Each word of --runs is `own` or
    `imported`, a packet rate, a run's number, or a name: a value that was varied, the platform, or
    a folder in an imported run's path, where * and ? stand for any letters: `--runs 'container, 10
    kpkt/s'`.
    """

    from tailtap.records.printed import ReportRecord
    from tailtap.show.report import write_report

    result = write_report(
        folder,
        out,
        figures=figures,
        runs=runs,
        figures_from=figures_from,
        progress=steps("report", quiet=quiet),
    )
    record = ReportRecord(
        page=str(result.page),
        bytes=result.size,
        figures=[str(path) for path in result.figures],
        runs=result.runs,
        failed=result.failed,
        imported=result.imported,
    )
    return Answer(record, lambda: say_whole(record.page))


@command(
    computes=True,
    examples=(
        ("tailtap publish results --check", "show what would leave, and what would be replaced"),
        (
            "tailtap publish results --license CC-BY-4.0 --author 'Ada Lovelace' --captures embed",
            "make a site with the stamps in it",
        ),
        ("tailtap publish results --anonymous --out review", "make one for a double-blind review"),
    ),
)
@click.argument(
    "folder",
    type=PATH,
    metavar="DIR",
    help="The folder that `tailtap run --out` or `tailtap search --out` wrote.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="SITE",
    help="The folder for the site; by default DIR/site. Only an earlier site is replaced.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only list what would leave, and what would be replaced.",
)
@click.option(
    "--captures",
    default="refer",
    metavar="embed|refer[=URL]",
    help="Whether captures, stamps and traces are in the site, or named with checksums, "
    "and the URL of their folder.",
)
@click.option(
    "--allow",
    default="",
    metavar="KIND,…",
    help="Publish these as they are: serials, macs, hostnames, users, addresses (of IP), ids "
    "(of machines and boots).",
)
@click.option(
    "--hide",
    multiple=True,
    metavar="TEXT",
    help="Replace this text as well, such as a name; may be repeated.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="For a double-blind review: also replace folders, and leave of days the month.",
)
@click.option(
    "--license",
    "licence",
    metavar="NAME",
    help="The licence of the site by its SPDX name, such as CC-BY-4.0.",
)
@click.option(
    "--author",
    "authors",
    multiple=True,
    metavar="NAME",
    help="An author: NAME <ORCID> (AFFILIATION), the last two if you like; may be repeated.",
)
def publish(
    folder: Path,
    out: Path | None,
    check: bool,
    captures: str,
    allow: str,
    hide: tuple[str, ...],
    anonymous: bool,
    licence: str | None,
    authors: tuple[str, ...],
    json: bool,
    quiet: bool,
) -> Answer:
    """Make a site of an experiment that others can read, check and run again.

    The site is a plain folder for any web server, and an experiment's folder, too
    (docs/howto/publish.md).

    What identifies people or machines is replaced, as far as fields and forms tell: look at the
    site first, and replace the rest by --hide. Needs `pip install 'tailtap[publish]'`.
    """
    record = library.publish(
        folder, out, captures=captures, allow=allow.split(","), hide=hide, anonymous=anonymous,
        licence=licence or None, authors=authors, check=check,
        progress=steps("publish", quiet=quiet),
    )  # fmt: skip
    return Answer(record, lambda: _print(record, leaving=check or not quiet))


def _print(record: PublishRecord, *, leaving: bool) -> None:
    if leaving:
        _print_leaving(record)
    for warning in record.site.warnings:
        warn(f"warning: {warning.message}")
    if record.folder:
        say_whole(record.folder)


def _print_leaving(record: PublishRecord) -> None:
    """What leaves, a line for each folder, and what was replaced."""
    from tailtap.cli.console import print_table
    from tailtap.show.publish.pages import WORDS, size_text
    from tailtap.show.sections.answers import leaving_tables

    more = "" if record.folder else ", and the figures, tables and pages that are made of them"
    say(f"what leaves: {len(record.files)} files, {size_text(record.bytes)}{more}")
    places, replaced, left_out = leaving_tables(record, WORDS)
    print_table(places)
    say()
    if not replaced:
        say("replaced: nothing that identifies was found")
    print_table(replaced)
    if left_out:
        say()
    print_table(left_out)
    if record.site.allowed:
        say(f"published as they are: {', '.join(WORDS[kind] for kind in record.site.allowed)}")
    say()


STATUS: dict[str, int] = {"reproduced": 0, "contradicted": 1, "not shown": 5}


@command(
    examples=(
        (
            "tailtap reproduce https://example.org/container-vs-bare-metal",
            "checksums, captures, figures, tables and claims of a published site",
        ),
        (
            "sudo tailtap reproduce site --level small --out here",
            "also measure it here, at its smallest scale",
        ),
    )
)
@click.argument(
    "site",
    metavar="SITE",
    help="What `tailtap publish` made: a folder, or its address (file, http or https). Or a "
    "crate of the RISE profile, or published result files.",
)
@click.option(
    "--level",
    type=click.Choice(["checksums", "captures", "figures", "small", "full"]),
    default="figures",
    help="How far to go; each includes those before it, but full replaces small. These two "
    "need root.",
)
@click.option(
    "--captures",
    type=PATH,
    metavar="DIR",
    help="Where captures are that the site lacks: DIR/runs/RUN/FILE or DIR/RUN/FILE.",
)
@click.option(
    "--fetch",
    type=SIZE,
    help="Fetch missing captures from the addresses that the site names, so many bytes at "
    "most, such as '2 GB'.",
)
@writes_into("The folder for new runs; by default the experiment's name and the time of day.")
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="PATH=VALUE",
    help="Replace one value of the experiment that is measured; may be repeated.",
)
@click.option(
    "--testbed",
    type=PATH,
    help="Measure on a testbed: its file (YAML).",
)
@click.option(
    "--allow-commands",
    is_flag=True,
    help="Measure although the experiment runs its publisher's commands or images, or "
    "takes cards, files, huge pages or settings of this machine.",
)
def reproduce(
    site: str,
    level: Level,
    captures: Path | None,
    fetch: int | None,
    out: Path | None,
    set_: tuple[str, ...],
    testbed: Path | None,
    allow_commands: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Repeat what was published, in rising cost, and answer: reproduced, not shown, contradicted.

    checksums: every file is there, unchanged, and no other. captures give the published numbers to
    the bit. figures made again are the published ones, and the published runs show the claims.
    small: runs on this machine, at the smallest scale, show them. full: as published.
    docs/howto/reproduce.md says what the answers mean.

    Only small and full execute something: the experiment. The exit status is 0 when all is
    reproduced, 1 when something is contradicted, 5 when something is not shown.
    """
    from tailtap.base.errors import InputError
    from tailtap.show.reproduce import MEASURING, Asked
    from tailtap.show.reproduce import reproduce as repeat
    from tailtap.show.reproduce.fetching import at
    from tailtap.show.sections.answers import reproduction_parts

    progress = steps("reproduce", quiet=quiet)

    measuring = level in MEASURING
    if not measuring and (out is not None or set_ or testbed is not None or allow_commands):
        raise InputError(
            "--out, --set, --testbed and --allow-commands are for measuring: add --level small"
        )
    if measuring and testbed is None:
        from tailtap.host.facts.needs import require_root

        require_root()
    measure = _measuring(level, set_, out, testbed, allow_commands, quiet=quiet)
    with at(site, progress) as folder:
        asked = Asked(level, captures, fetch or 0)
        found = repeat(folder, site, asked, measure if measuring else None, progress)
    return Answer(found, lambda: reproduction_parts(found), STATUS[found.answer])


def _measuring(
    level: Level,
    overrides: Sequence[str],
    out: Path | None,
    testbed: Path | None,
    allow_commands: bool,
    *,
    quiet: bool,
) -> Callable[[Path], Path]:
    """What makes the runs of a site's experiment, and returns their folder."""

    from tailtap.cli.caller import results_of_caller
    from tailtap.cli.progress import listener
    from tailtap.library import measure_again

    def connect(checked: CheckedExperiment) -> tuple[Stations | None, Boots | None]:
        from tailtap.cli.run import stations_of_file

        return stations_of_file(checked, testbed, quiet=quiet)

    return partial(
        measure_again, level, overrides=overrides, out=out, testbed=testbed,
        allow_commands=allow_commands, connect=connect, around=results_of_caller,
        listeners=[listener(quiet=quiet)],
    )  # fmt: skip
