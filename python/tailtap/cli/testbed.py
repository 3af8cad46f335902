"""`tailtap testbed`: the machines of a testbed, and what a person asks of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.errors import InputError, MachineError, naming
from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.terminal import say, say_whole, unless

if TYPE_CHECKING:
    from tailtap.measure.testbed.model import Host
    from tailtap.records.printed import TestbedCheckRecord

ACTIONS = ("status", "on", "off", "cycle")
testbed_file = click.argument("testbed", type=PATH, help="The testbed file (YAML).")
host_name = click.argument("host", help="The name of a host in that file.")


@command(
    examples=(("sudo tailtap testbed check lab.yaml", "send packets over each cable of a testbed"),)
)
@testbed_file
def check(testbed: Path, json: bool, quiet: bool) -> Answer:
    """Log in to all hosts of a testbed and send packets over each of its cables.

    Says which cables are dead or end elsewhere than the file says, and whether cards behind
    splitters stamp every packet in hardware. Exit status 0 when all is as the file says, 1 when a
    cable is not, 3 when a host cannot be asked.
    """
    from tailtap.measure.testbed import check as library
    from tailtap.measure.testbed.model import read_testbed

    found = library.check(read_testbed(testbed), unless(quiet))
    lost = [MachineError(host.said) for host in found.hosts if host.kernel is None]
    problem = lost[0] if lost else None
    return Answer(found, lambda: print_cables(found), 0 if found.right else 1, problem)


def print_cables(found: TestbedCheckRecord) -> None:
    """Print the hosts, the cables, and what the cards behind splitters stamp."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections import row, table, words

    hosts = (row(host.name, host.kernel or "not reached") for host in found.hosts)
    print_table(table("", words("host", "kernel", wrap=12), hosts))
    say()
    cables = (row(" - ".join(one.ends), one.splitter, one.answer, one.said) for one in found.cables)
    print_table(table("", words("cable", "splitter", "answer", "", wrap=12), cables))
    for card, said in found.stamping.items():
        say(f"{card}: {said}")


@command(examples=(("tailtap testbed power lab.yaml dut cycle", "switch a hung host off and on"),))
@testbed_file
@host_name
@click.argument(
    "action",
    type=click.Choice(ACTIONS),
    help="status tells whether it is on. off does not ask the host's kernel.",
)
def power(testbed: Path, host: str, action: str, json: bool, quiet: bool) -> Answer:
    """Switch a host of a testbed on and off, and print its state afterwards.

    The key `power` of the host says how: by IPMI, by Redfish, or by commands.
    """
    from tailtap.measure.testbed.power import power_of
    from tailtap.records.printed import PowerRecord

    options = _host(testbed, host).power
    if options is None:
        raise InputError(f"hosts.{host}.power: this key is missing: it says how").at(testbed)
    power = power_of(options)
    if action != "status":
        {"on": power.on, "off": power.off, "cycle": power.cycle}[action]()
    state = power.status()
    return Answer(PowerRecord(host=host, power=state), lambda: say_whole(state))


@command(
    examples=(
        (
            "tailtap testbed boot lab.yaml dut --kernel rt --append 'nohz_full=1-3'",
            "boot the real-time kernel with a parameter, once",
        ),
        ("tailtap testbed boot lab.yaml dut --default", "give back what the host boots by itself"),
    )
)
@testbed_file
@host_name
@click.option("--kernel", help="vanilla, rt, a version or a live image, as dut.kernel has it.")
@click.option("--append", default="", help="Parameters for the kernel, as dut.boot has them.")
@click.option("--default", is_flag=True, help="Reboot the host into what it boots by default.")
def boot(
    testbed: Path,
    host: str,
    kernel: str | None,
    append: str,
    default: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Boot a host of a testbed once with a kernel and its parameters, and check that it came up so.

    The key `boot` of the host says how: by kexec, GRUB, iPXE or a command. Its default stays as it
    is. A host that does not come back in time is switched off and on, if its key `power` says how.
    Then the exit status is 3.
    """
    from tailtap.base.schema import check_fields
    from tailtap.lab.platforms.boot import check_boot
    from tailtap.measure.boots import Wanted
    from tailtap.measure.testbed.boot.booting import booting_of
    from tailtap.measure.testbed.model import read_testbed
    from tailtap.records.printed import BootRecord

    if default and (kernel is not None or append):
        raise InputError(
            "--default boots the host as it does by itself: leave --kernel and --append out"
        )
    with naming(str(testbed)):
        booting = booting_of(read_testbed(testbed), host, unless(quiet))
    if booting is None:
        raise InputError(f"hosts.{host}.boot: this key is missing: it says how").at(testbed)
    if default:
        told = booting.default()
        record = BootRecord(
            host=host, boot_id=told.boot_id, release=told.release, command_line=told.line,
            cgroup=told.cgroup,
        )  # fmt: skip
    else:
        try:
            check_fields(check_boot(append), [])
        except ValueError as error:
            raise InputError(f"--append: {error}") from error
        from msgspec import convert

        from tailtap.records.record import as_json

        told_now = as_json(booting.boot(Wanted(kernel, append.strip())))
        record = convert({"host": host, **told_now}, BootRecord)
    return Answer(record, lambda: say(f"{host} runs {record.release} with {record.command_line}"))


@command(examples=(("tailtap testbed console lab.yaml dut", "watch a host boot"),))
@testbed_file
@host_name
def console(testbed: Path, host: str, json: bool, quiet: bool) -> None:
    """Show the serial console of a host of a testbed, and type into it.

    The key `console` of the host has the command. Without it, that of its controller is shown where
    `power` is of the kind ipmi; `~.` ends it. This program becomes the other one.
    """
    from tailtap.measure.testbed.boot.booting import attach

    if json:
        raise InputError("--json: a console is for a person: leave it out")
    attach(host, _host(testbed, host))


def _host(testbed: Path, name: str) -> Host:
    """A host of a testbed file. Raises `InputError` for a name that is not in it."""
    from tailtap.measure.testbed.model import read_testbed

    hosts = read_testbed(testbed).hosts
    if name not in hosts:
        raise InputError(f"{testbed} has no host {name}: there are {', '.join(hosts)}")
    return hosts[name]


@command(
    examples=(
        (
            "sudo tailtap testbed image --out live/rt --kernel rt --keys ~/.ssh/id_ed25519.pub",
            "a live image with the real-time kernel",
        ),
    )
)
@click.option("--out", type=PATH, required=True, help="The image's folder.")
@click.option(
    "--keys",
    type=PATH,
    required=True,
    help="A file of public keys; who has one of them may log in as root.",
)
@click.option("--kernel", default="vanilla", help="vanilla, rt, or a Debian package.")
@click.option("--suite", default="bookworm", help="The release of Debian.")
@click.option("--include", multiple=True, metavar="PACKAGE", help="A further package; repeatable.")
def image(
    out: Path,
    keys: Path,
    kernel: str,
    suite: str,
    include: tuple[str, ...],
    json: bool,
    quiet: bool,
) -> Answer:
    """Make a live image: a kernel, and an initrd with a whole Debian root, made by mmdebstrap.

    Hosts boot it by kexec, GRUB or iPXE. The image has no secret; the host key is kept in
    host-key.cpio beside it. With the same SOURCE_DATE_EPOCH, keys and packages the image is the
    same.
    """
    from tailtap.measure.testbed.image import make_image
    from tailtap.records.printed import ImageRecord

    given = os.environ.get("SOURCE_DATE_EPOCH", str(int(time.time())))
    if not given.isdigit():
        raise InputError(f"SOURCE_DATE_EPOCH={given}: write seconds since 1970")
    made = make_image(out, keys=keys, kernel=kernel, suite=suite, include=include, epoch=int(given))
    size = made.initrd.stat().st_size
    return Answer(
        ImageRecord(folder=str(out), release=made.release, initrd_bytes=size),
        lambda: say(f"{out}: {made.release}, {size / 1e6:.0f} MB"),
    )
