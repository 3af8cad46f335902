"""`grub`: an entry of GRUB's menu for the next boot only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.base.schema import Matching, Strict
from tailtap.measure.testbed.boot import Files, brought, reboot
from tailtap.measure.testbed.far import FarHost

ENTRY = "tailtap"
HEAD, END = "### tailtap begins ###", "### tailtap ends ###"
UNWRITABLE = frozenset(("btrfs", "zfs", "f2fs"))
"""File systems in which GRUB may not write a block, as their checksums would be wrong."""
_EDIT = """set -eu
cfg=$1 new=$2
[ -e "$cfg" ] || : > "$cfg"
sed '/^### tailtap begins ###$/,/^### tailtap ends ###$/d' "$cfg" > "$cfg.tailtap"
printf '%s' "$new" >> "$cfg.tailtap"
if [ -s "$cfg.tailtap" ]; then mv "$cfg.tailtap" "$cfg"; else rm -f "$cfg" "$cfg.tailtap"; fi
sync -f "${cfg%/*}"
"""


class GrubOptions(Strict):
    """Where GRUB's files are."""

    folder: Annotated[
        str, Matching(r"^/[^\s]*$", "a path that begins with /, such as /boot/grub")
    ] = Field(
        default="/boot/grub",
        description="The folder of the host's grub.cfg and grubenv.",
        examples=["/boot/grub2"],
    )


class Grub:
    """By `next_entry` in GRUB's environment, which its configuration reads and clears."""

    def __init__(self, options: GrubOptions) -> None:
        """GRUB's files are where `options` say."""
        self._folder = options.folder
        self._files = str(PurePosixPath(options.folder).parent / "tailtap")

    @contextlib.contextmanager
    def boot(self, host: FarHost, files: Files) -> Iterator[None]:
        """Write an entry, name it for the next boot, and reboot. Raises `MachineError`."""
        program = self._require(host)
        kernel, *initrd = brought(host, files, self._files)
        # The path as GRUB sees it, from the root of the file system that the files are in.
        seen = [self._seen(host, program, path) for path in (kernel, *initrd)]
        uuid = self._probe(host, program, "fs_uuid", str(PurePosixPath(kernel).parent))
        self._edit(host, entry(files.line, uuid, seen))
        host.run([f"{program}-editenv", f"{self._folder}/grubenv", "set", f"next_entry={ENTRY}"])
        reboot(host)
        yield

    def tidy(self, host: FarHost) -> None:
        """Remove the entry and the files; the default was never touched. Raises `MachineError`."""
        program = self._program(host)
        if program is not None and host.run(["test", "-d", self._folder], check=False).status == 0:
            self._edit(host, "")
            host.run(
                [f"{program}-editenv", f"{self._folder}/grubenv", "unset", "next_entry"],
                check=False,
            )
            host.run(["rm", "-rf", self._files])

    def _require(self, host: FarHost) -> str:
        """How GRUB's programs begin. Raises `MachineError` where one boot would become a loop."""
        program = self._program(host)
        if program is None:
            raise MachineError(
                "there is no grub-editenv: apt-get install grub-common, or take another `via`"
            ).at(host.name)
        config = f"{self._folder}/grub.cfg"
        told = host.run(["cat", config], check=False)
        if told.status != 0:
            raise MachineError(f"there is no {config}: say where it is in `boot.folder`").at(
                host.name
            )
        for word, why in (
            ("next_entry", "does not know entries for one boot"),
            ("custom.cfg", "does not read custom.cfg"),
        ):
            if word not in told.stdout:
                raise MachineError(f"{config} {why}: run update-grub, or take another `via`").at(
                    host.name
                )
        layers = self._probe(host, program, "abstraction", self._folder)
        kind = self._probe(host, program, "fs", self._folder)
        if layers or kind in UNWRITABLE:
            raise MachineError(
                f"GRUB cannot write {self._folder}/grubenv, which is on "
                f"{layers or kind}, so it would boot the same entry for ever: take another `via`"
            ).at(host.name)
        return program

    def _program(self, host: FarHost) -> str | None:
        for name in ("grub", "grub2"):
            # Where there is none, the shell's own status would be that of a missing shell.
            if host.run(["sh", "-c", f"command -v {name}-editenv || true"]).stdout.strip():
                return name
        return None

    def _probe(self, host: FarHost, program: str, what: str, path: str) -> str:
        return host.run([f"{program}-probe", f"--target={what}", path]).stdout.strip()

    def _seen(self, host: FarHost, program: str, path: str) -> str:
        return host.run([f"{program}-mkrelpath", path]).stdout.strip()

    def _edit(self, host: FarHost, text: str) -> None:
        host.run(["sh", "-c", _EDIT, "edit", f"{self._folder}/custom.cfg", text])


def entry(line: str, uuid: str, paths: list[str]) -> str:
    """The entry of GRUB's menu for the files at `paths` of the file system `uuid`."""
    kernel, *initrd = paths
    rows = [
        HEAD,
        f"menuentry '{ENTRY}' --id {ENTRY} {{",
        f"  search --no-floppy --fs-uuid --set=root {uuid}",
        f"  linux {_quoted(kernel)} {' '.join(map(_quoted, line.split(' ')))}",
        *([f"  initrd {' '.join(map(_quoted, initrd))}"] if initrd else []),
        "}",
        END,
        "",
    ]
    return "\n".join(rows)


def _quoted(word: str) -> str:
    """A word as GRUB's script language has it: ``$`` and braces have no meaning in quotes."""
    plain = all(letter.isalnum() or letter in "_-.,:/=+%@" for letter in word)
    return word if plain and word else "'" + word.replace("'", "'\\''") + "'"


class GrubKind:
    """GRUB boots an entry once."""

    summary = "GRUB boots an entry of ours once; its default stays."
    documentation = (
        "Through the firmware, as after a reset. GRUB must be able to write its `grubenv`: on a "
        "plain disk, not on LVM, RAID, btrfs or ZFS, which is checked. The host needs grub-common."
    )
    Options: type[BaseModel] = GrubOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing here: the host needs GRUB."""
        yield Check("boot way", "grub", "ok", "needs nothing on this machine")

    def open(self, name: str, options: BaseModel) -> Grub:
        """With GRUB's files where `options` say."""
        assert isinstance(options, GrubOptions)
        return Grub(options)
