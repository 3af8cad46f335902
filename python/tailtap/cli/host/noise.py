"""`tailtap host noise`: measure what takes cores that nobody asks for anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.units import format_time, format_us
from tailtap.cli.command import CPUS, TIME, Answer, command
from tailtap.cli.options import writes_into
from tailtap.cli.terminal import say, unless, warn_of

if TYPE_CHECKING:
    from tailtap.records.machine import NoiseRecord

MOST, PARTS = 15, 5
"""How many causes are printed, and of a gap how many of its parts."""


@command(
    examples=(
        ("sudo tailtap host noise --cpus 1", "one core, for ten seconds"),
        (
            "sudo tailtap host noise --cpus 2-5 --for 10min --above '5 us' --out results/first",
            "the floor that the report of these results shows",
        ),
    )
)
@click.option("--cpus", required=True, type=CPUS, help="The CPUs, '2-3,5'.")
@click.option(
    "--for",
    "--duration",
    "lasts",
    default="10 s",
    type=TIME,
    help="How long.",
)
@click.option(
    "--above",
    default="1 us",
    type=TIME,
    help="The core was taken if the loop did not run for longer than this.",
)
@writes_into("Also write noise.json there; in the folder of an experiment, its report shows it.")
def noise(
    cpus: list[int], lasts: int, above: int, out: Path | None, json: bool, quiet: bool
) -> Answer:
    """Measure what takes cores that nobody asks for anything, and name it.

    A loop on each CPU does nothing but read the clock. A gap is a time between two reads that was
    longer than --above. The tracer follows the CPUs meanwhile, so that what took the time has its
    name: a timer, an interrupt, a task, the hypervisor. A gap that the kernel knows nothing of was
    the hypervisor's or the firmware's. No packet that a core serves is faster than its gaps allow:
    they are the floor of the core, as `platform: wire` is that of the links.

    Nothing is changed on the machine. The loops run at ordinary priority. The tracer itself takes
    some tenths of a microsecond of each interrupt and each switch of tasks.
    """

    from tailtap.base.files import write_json
    from tailtap.base.units import ranges
    from tailtap.measure.noise import noise as watch
    from tailtap.records.machine import NOISE
    from tailtap.records.record import as_json

    unless(quiet)(f"noise: reading the clock on CPUs {ranges(cpus)} for {format_time(lasts)}")
    found = watch(cpus, lasts, above)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / NOISE, as_json(found), below=out)
    return Answer(found, lambda: _print(found))


def _print(found: NoiseRecord) -> None:
    from tailtap.cli.console import print_section
    from tailtap.show.sections.machine import noise_section

    print_section(noise_section(found))
    for gap in found.worst[:3]:
        parts = ", ".join(
            f"{part.cause}{f' ({part.detail})' if part.detail else ''} {format_us(part.ns)}"
            for part in gap.parts[:PARTS]
        )
        say(f"CPU {gap.cpu}, {format_us(gap.ns)} us: {parts}")
    warn_of(found.warnings)
