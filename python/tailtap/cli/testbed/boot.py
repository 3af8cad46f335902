"""`tailtap testbed boot`: boot a host of a testbed with a kernel and its parameters."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.terminal import say, unless


@command(
    examples=(
        (
            "tailtap testbed boot lab.yaml dut --kernel rt --append 'nohz_full=1-3'",
            "boot the real-time kernel with a parameter, once",
        ),
        ("tailtap testbed boot lab.yaml dut --default", "give back what the host boots by itself"),
    )
)
@click.argument("testbed", type=PATH, help="The testbed file (YAML).")
@click.argument("host", help="The name of a host in that file.")
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
) -> None:
    """Boot a host of a testbed once with a kernel and its parameters, and check that it came up so.

    The key `boot` of the host says how: by kexec, GRUB or iPXE. Its default stays as it is. A host
    that does not come back in time is switched off and on, if its key `power` says how. Then the
    exit status is 3.
    """

    from msgspec import convert

    from tailtap.base.errors import InputError, naming
    from tailtap.base.schema import check_fields
    from tailtap.lab.platforms.boot import check_boot
    from tailtap.measure.boots import Wanted
    from tailtap.measure.testbed.model import read_testbed
    from tailtap.measure.testbed.stations import booting_of
    from tailtap.records.printed import BootRecord
    from tailtap.records.record import as_json, printed

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
        record = {"boot_id": told.boot_id, "release": told.release, "command_line": told.line,
                  "cgroup": told.cgroup}  # fmt: skip
    else:
        try:
            check_fields(check_boot(append), [])
        except ValueError as error:
            raise InputError(f"--append: {error}") from error
        record = as_json(booting.boot(Wanted(kernel, append.strip())))
    if json:
        print(printed(convert({"host": host, **record}, BootRecord)))
    else:
        say(f"{host} runs {record['release']} with {record['command_line']}")
