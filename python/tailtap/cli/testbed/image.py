"""`tailtap testbed image`: make a live image that hosts of a testbed boot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.terminal import say


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
) -> None:
    """Make a live image: a kernel, and an initrd with a whole Debian root, made by mmdebstrap.

    Hosts boot it by kexec, GRUB or iPXE, and have the same files after every boot. It has ssh,
    python3, the kernel's drivers and what tailtap calls. The host key is made once and kept in the
    folder, so that ssh knows the host, in host-key.cpio beside the image, which has no secret. No
    file in it is newer than SOURCE_DATE_EPOCH, or than now without it: with the same time, keys and
    packages the image is the same.
    """

    from tailtap.base.errors import InputError
    from tailtap.measure.testbed.image import make_image
    from tailtap.records.printed import ImageRecord
    from tailtap.records.record import printed

    given = os.environ.get("SOURCE_DATE_EPOCH", str(int(time.time())))
    if not given.isdigit():
        raise InputError(f"SOURCE_DATE_EPOCH={given}: write seconds since 1970")
    made = make_image(out, keys=keys, kernel=kernel, suite=suite, include=include, epoch=int(given))
    size = made.initrd.stat().st_size
    if json:
        print(printed(ImageRecord(folder=str(out), release=made.release, initrd_bytes=size)))
    else:
        say(f"{out}: {made.release}, {size / 1e6:.0f} MB")
