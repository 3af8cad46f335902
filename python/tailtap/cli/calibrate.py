"""`tailtap calibrate`: what only the owner of a testbed can try."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.base.errors import InputError, MachineError
from tailtap.cli.command import LENGTH, RATE, TIME, Answer, command
from tailtap.cli.terminal import say, steps


@command(
    examples=(
        ("sudo tailtap calibrate lab.yaml --json > calibration.json", "a testbed, for the file"),
        ("sudo tailtap calibrate eth1 eth2 --length '2 m'", "two cards of this machine"),
        ("sudo tailtap calibrate lab.yaml --rate '100 kpkt/s'", "up to the rate of a measurement"),
        ("sudo tailtap calibrate lab.yaml --boot", "boots of its hosts as well"),
    )
)
@click.argument(
    "what",
    nargs=-1,
    required=True,
    help="A testbed file (YAML), or two cards of this machine with a cable between them.",
)
@click.option("--length", type=LENGTH, help="Of the way between two places of stamps, '2 m'.")
@click.option("--rate", type=RATE, help="The highest rate to try. By default that of the line.")
@click.option("--time", type=TIME, default="1 s", help="How long each load takes.")
@click.option("--clocks", type=TIME, default="3 s", help="How long clocks of cards are read.")
@click.option(
    "--generator",
    type=click.Choice(("af_packet", "af_xdp")),
    default="af_packet",
    help="Who sends, as in `tailtap generate`.",
)
@click.option("--cpu", type=click.IntRange(min=0), help="The CPU that sends, on each host.")
@click.option("--boot", is_flag=True, help="Boot each host that has `boot` first, once an image.")
def calibrate(
    what: tuple[str, ...],
    length: int | None,
    rate: int | None,
    time: int,
    clocks: int,
    generator: str,
    cpu: int | None,
    boot: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Try the cables, taps, clocks, generators and cards of a testbed, by packets of its own.

    Cables are checked by packets, also which fibre a splitter copies. Each cable then carries
    rising rates up to the line's: what its tap loses, and how late the generator sends. Stamps are
    compared with a known length, clocks of cards with each other. Cards on a PCI bus are handed
    over to vfio-pci and back, and have virtual functions made and removed. Hosts are rebooted with
    --boot only.

    States are those of `tailtap doctor`: ok, poor, missing, untested, each with its number and the
    next step. Nothing may use the cards meanwhile. Exit status 0 when nothing is poor or missing, 1
    when something is, 3 when a host cannot be asked.
    """
    import tailtap
    from tailtap.cli.console import print_table
    from tailtap.cli.machine import PIPED
    from tailtap.doctor.calibrating import HOSTS, Wanted, two_cards
    from tailtap.doctor.calibrating import calibrate as library
    from tailtap.measure.testbed.model import read_testbed
    from tailtap.records.printed import CalibrationRecord, CheckRow
    from tailtap.records.record import made
    from tailtap.show.sections.machine import checks_table

    if len(what) > 2:
        raise InputError("give one testbed file, or two cards").at(" ".join(what))
    testbed = two_cards(*what) if len(what) == 2 else read_testbed(Path(what[0]))
    wanted = Wanted(
        time / 1e9, rate, None if length is None else length / 1000, generator, cpu, clocks, boot
    )
    checks = library(testbed, wanted, steps("calibrate", quiet=quiet))
    wrong = [one for one in checks if one.state in ("poor", "missing")]
    away = [one for one in wrong if one.area == HOSTS and one.name in testbed.hosts]
    record = CalibrationRecord(
        tailtap=tailtap.__version__,
        right=not wrong,
        checks=[made(check, CheckRow) for check in checks],
    )

    def show() -> None:
        print_table(checks_table(wrong if quiet else checks), piped=PIPED)
        say(f"{len(wrong)} of {len(checks)} checks are poor or missing" if wrong else "all is well")

    problem = MachineError(away[0].found) if away else None
    return Answer(record, show, 1 if wrong else 0, problem)
