"""`tailtap reproduce`: repeat what was published, and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, SIZE, command
from tailtap.cli.command import Answer as Answered
from tailtap.cli.options import writes_into
from tailtap.cli.terminal import say, steps

if TYPE_CHECKING:
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.campaign import Boots
    from tailtap.measure.roles import Stations
    from tailtap.records.site import Answer, Level, ReproductionRecord

STATUS: dict[Answer, int] = {"reproduced": 0, "contradicted": 1, "not shown": 5}


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
    help="What `tailtap publish` made: a folder, or its address (file, http or https). Or a folder "
    "with a crate of the RISE profile, or with published result files.",
)
@click.option(
    "--level",
    type=click.Choice(["checksums", "captures", "figures", "small", "full"]),
    default="figures",
    help="How far to go; each includes what is before it, but full takes the place of small. The "
    "last two measure on this machine, and need root.",
)
@click.option(
    "--captures",
    type=PATH,
    metavar="DIR",
    help="Where captures are that the site names and does not have: DIR/runs/RUN/FILE or "
    "DIR/RUN/FILE.",
)
@click.option(
    "--fetch",
    type=SIZE,
    help="Fetch captures that are neither there nor in the site, from the addresses that it names: "
    "so many bytes together at most, such as '2 GB'. Each is used only if its checksum is right.",
)
@writes_into("The folder for new runs; by default the experiment's name and the time of day.")
@click.option(
    "--set",
    "set_",
    multiple=True,
    metavar="PATH=VALUE",
    help="Replace one value of the experiment that is measured, such as its CPUs or scale. May be "
    "given several times.",
)
@click.option(
    "--testbed",
    type=PATH,
    help="Measure on a testbed: its file (YAML).",
)
@click.option(
    "--allow-commands",
    is_flag=True,
    help="Measure an experiment that runs commands or images of whoever published it, or takes "
    "network cards, files, huge pages or settings of this machine.",
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
) -> Answered:
    """Repeat what was published, in rising cost, and answer: reproduced, not shown, contradicted.

    checksums: every file is there, unchanged, and no other. captures: evaluated again, they give
    the published numbers to the bit. figures: figures and tables made again are the published ones,
    and each claim is judged by the published runs. small: the experiment is measured on this
    machine, at its smallest scale, and each claim is judged by these runs. full: as it was
    published.

    Claims that compare configurations are judged here as there. A claim of a requirement, such as
    p99.9 < 1 ms, is about its machine, too: violated here, it is contradicted only if nothing that
    matters differs between the machines, and else not shown; the differences are listed. Latencies
    of two machines are never compared.

    Nothing of a site is executed but the experiment that it describes, and that only for small and
    full. docs/howto/reproduce.md says more. The exit status is 0 when all is reproduced, 1 when
    something is contradicted, 5 when something is not shown.
    """
    from tailtap.base.errors import InputError
    from tailtap.library import remedies
    from tailtap.show.reproduce import MEASURING, Asked
    from tailtap.show.reproduce import reproduce as repeat
    from tailtap.show.reproduce.fetching import at

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
        asked = Asked(level, captures, fetch or 0, remedies())
        found = repeat(folder, site, asked, measure if measuring else None, progress)
    return Answered(found, lambda: print_reproduction(found), STATUS[found.answer])


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


def print_reproduction(found: ReproductionRecord) -> None:
    """Print the object of ``--json``: each step, what differs, claims, machines, the answer."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.answers import reproduction_tables

    kinds = {"site": "site", "crate": "crate of the RISE profile", "results": "result files"}
    say(f"{found.name or found.place}: {kinds[found.kind]}")
    for line in found.about:
        say(f"  {line}")
    for table in reproduction_tables(found):
        print_table(table)
    if found.folder is not None:
        say(f"runs of this machine: {found.folder}")
    say(f"answer: {found.answer}")
