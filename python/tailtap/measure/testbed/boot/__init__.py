"""How hosts are booted: one class a way, one row in `WAYS`.

A way boots a host once with a kernel and a command line. What the host boots by default stays as it
is, so that a power cycle brings that back.
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

from tailtap.base.errors import Check, InputError, MachineError
from tailtap.base.registry import Kind, OwnKind, Registry
from tailtap.base.schema import (
    Matching,
    NoOptions,
    Strict,
    Time,
    as_value_error,
    check_command,
    fill_in,
)
from tailtap.lab.platforms.boot import check_boot
from tailtap.remote import CommandFailed, NoAnswer, ProgramMissing
from tailtap.remote.local import LocalHost

if TYPE_CHECKING:  # it reads the testbed file, which names ways
    from tailtap.measure.testbed.ssh import FarHost


COMMAND = "command"


class BootOptions(Strict):
    """How a host is booted. The way declares further keys."""

    via: str = Field(
        description="The way: kexec, grub, ipxe or command, which docs/reference/kinds.md "
        "describes. Where there is a command, it need not be said.",
        examples=["kexec"],
    )
    images: dict[str, str] = Field(
        default_factory=dict,
        description="Live images that stand for the names of kernels (dut.kernel): folders beside "
        "the testbed file, which `tailtap testbed image` makes. Without any, the host boots the "
        "kernels in its own /boot.",
        examples=[{"vanilla": "live/vanilla", "rt": "live/rt"}],
    )
    append: str | None = Field(
        default=None,
        description="The parameters that each boot has, before those of dut.boot. By default the "
        "ones that the host was booted with, or none with a live image.",
        examples=["console=ttyS0 ip=eno1:dhcp"],
    )
    timeout: Time = Field(
        default=300_000_000_000,
        description="How long the host may take until ssh reaches it again. Then it is switched "
        "off and on once, if `power` says how, and the run fails.",
        examples=["10 min"],
    )
    _own: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def own(self) -> Mapping[str, Any]:
        """The keys of the way itself, with `via`."""
        return {"via": self.via, **self._own}

    @model_validator(mode="wrap")
    @classmethod
    def _keys_of_the_way(
        cls, data: Any, handler: ModelWrapValidatorHandler[BootOptions]
    ) -> BootOptions:
        if not isinstance(data, Mapping):
            return handler(data)
        if COMMAND in data and "via" not in data:
            data = {**data, "via": COMMAND}
        own = {key: value for key, value in data.items() if key not in cls.model_fields}
        options = handler({key: value for key, value in data.items() if key not in own})
        with as_value_error():
            WAYS.chosen("via", {"via": options.via, **own})
        options._own = own
        if options.via == COMMAND and options.images:
            raise ValueError("images are what tailtap boots: leave them out where a command boots")
        if options.append is not None:
            check_boot(options.append)
        return options


GO_SECONDS = 20.0
"""How long a host may take to say that it goes down. After a kexec it says nothing."""
PUT = "/run/tailtap-boot"
"""Where files are until they are loaded: in memory, so that a reboot forgets them."""


def brought(host: FarHost, files: Files, folder: str = PUT) -> list[str]:
    """The paths on the host of the kernel and of the initial RAM disk, which are brought there."""
    if not files.ours:
        return [str(path) for path in files.paths]
    host.run(["mkdir", "-p", "-m", "700", folder])
    found = []
    for path in files.paths:
        try:
            host.put(path, f"{folder}/{path.name}")
        except OSError as error:
            raise MachineError(str(error.strerror)).at(path) from error
        found.append(f"{folder}/{path.name}")
    return found


def go(host: FarHost, with_systemd: Sequence[str], without: Sequence[str]) -> None:
    """Have the host go down by one of these commands, whichever its first process is for.

    Raises `CommandFailed` when it refuses; that the connection ends is no failure.
    """
    systemd = host.run(["test", "-d", "/run/systemd/system"], check=False).status == 0
    host.run(["sync"])
    try:
        host.run(with_systemd if systemd else without, seconds=GO_SECONDS)
    except NoAnswer:
        pass
    except (CommandFailed, ProgramMissing):
        raise
    except MachineError:
        pass  # the connection has ended


def reboot(host: FarHost) -> None:
    """Have the host reboot, through its firmware."""
    go(host, ["systemctl", "reboot"], ["reboot", "-f"])


@dataclass(frozen=True)
class Files:
    """What a host is booted with."""

    kernel: str
    """The path of the kernel: here where it is one of `ours`, else on the host."""
    initrd: str | None
    """The path of the initial RAM disk in the same place."""
    release: str
    line: str
    ours: bool
    """Whether they are files of this machine, those of a live image."""
    key: str | None = None
    """The path of the archive with the host's own key, of a live image: nobody else may get it."""

    @property
    def paths(self) -> list[Path]:
        """The kernel, and the archives that it unpacks one after the other."""
        return [Path(one) for one in (self.kernel, self.key, self.initrd) if one is not None]


class Way(Protocol):
    """One way to boot, for one host. All of it raises `MachineError`."""

    def boot(self, host: FarHost, files: Files) -> AbstractContextManager[None]:
        """Have the host reboot with these files, once.

        Entered, the host is going down or about to. The context is left once it is up again, or
        has not come: then nothing of this way may be needed any more.
        """
        ...

    def tidy(self, host: FarHost) -> None:
        """Remove from the host, which has booted, what `boot` left there."""
        ...


class WayKind(Kind, Protocol):
    """One kind of way."""

    Options: type[BaseModel]
    """The keys beside those that all ways have."""

    def open(self, name: str, options: BaseModel, /) -> Way:
        """The way of the host `name`. Nothing is done yet."""
        ...


def _built_in() -> Mapping[str, WayKind]:
    from tailtap.measure.testbed.boot.ipxe import Ipxe, IpxeOptions

    return {
        "kexec": OwnKind(
            "The running kernel loads the next one and jumps into it.",
            "It skips the firmware, and takes seconds where a reset of a server takes minutes; "
            "network cards keep what the last driver left in them. The host needs kexec-tools.",
            NoOptions,
            lambda *_: Kexec(),
            lambda: Check("boot way", "kexec", "ok", "needs nothing on this machine"),
        ),
        "grub": OwnKind(
            "GRUB boots an entry of ours once; its default stays.",
            "Through the firmware. GRUB must be able to write its `grubenv`: on a plain disk, not "
            "on LVM, RAID, btrfs or ZFS. The host needs grub-common.",
            GrubOptions,
            lambda _, options: Grub(options),
            lambda: Check("boot way", "grub", "ok", "needs nothing on this machine"),
        ),
        "ipxe": OwnKind(
            "iPXE boots a live image that this machine serves over HTTP while the host boots.",
            "For hosts without disks, live images only, in a network of their own: it is plain "
            "HTTP (docs/howto/testbed.md).",
            IpxeOptions,
            Ipxe,
            lambda: Check("boot way", "ipxe", "ok", "needs nothing of its own"),
        ),
        COMMAND: OwnKind(
            "Any command boots the host, such as that of a testbed's own software (pos).",
            "It is run on this machine, also for a host that is down, and has ended when the host "
            "goes down or before. tailtap waits until ssh reaches another boot, and compares its "
            "command line.",
            CommandedOptions,
            Commanded,
            lambda: Check("boot way", COMMAND, "ok", "needs nothing of its own"),
        ),
    }


WAYS: Registry[WayKind] = Registry("boot way", "tailtap.boot_ways", WayKind, _built_in)


class CommandedOptions(Strict):
    """The command."""

    command: Annotated[
        str,
        Field(max_length=10_000),
        AfterValidator(lambda text: check_command(text, ("host", "kernel", "boot"))),
    ] = Field(
        description="The command. {host}, the host's name in the file, {kernel}, dut.kernel or "
        "nothing, and {boot}, the parameters with those of dut.boot, are filled in, each within "
        "its word; {{ is a brace.",
        examples=["./boot.sh {host} {kernel} {boot}"],
    )


class Commanded:
    """By a command on this machine, which may know kernels by names of its own."""

    def __init__(self, name: str, options: CommandedOptions) -> None:
        self._name, self._command = name, options.command

    def files(self, kernel: str | None, line: str) -> Files:
        """What the command is told. Raises `InputError` for what it does not take."""
        fields = {field for _, field, _, _ in string.Formatter().parse(self._command)}
        for key, field, value in (("dut.kernel", "kernel", kernel), ("dut.boot", "boot", line)):
            if value and field not in fields:
                raise InputError(
                    f"the command of hosts.{self._name}.boot has no {{{field}}}, so it does not "
                    "know of it: put it there, or leave the key out"
                ).at(f"{key}: {value}")
        return Files(kernel or "", None, "", line, ours=False)

    @contextlib.contextmanager
    def boot(self, host: FarHost | None, files: Files) -> Iterator[None]:
        """Run the command; the host need not be there."""
        values = {"host": self._name, "kernel": files.kernel, "boot": files.line}
        LocalHost().run(fill_in(self._command, values), seconds=COMMAND_SECONDS)
        yield

    def tidy(self, host: FarHost) -> None:
        """Nothing of ours is left there."""


COMMAND_SECONDS = 1800.0
"""How long a command that boots may take; some return when the host is up."""
LOAD_SECONDS = 120.0
"""How long it may take to check and copy an initial RAM disk of hundreds of MB."""


class Kexec:
    """By kexec_file_load(2), or kexec_load(2) on kernels without it."""

    @contextlib.contextmanager
    def boot(self, host: FarHost, files: Files) -> Iterator[None]:
        try:
            kernel, *initrd = brought(host, files)
            if len(initrd) > 1:  # kexec takes one
                joined = f"{PUT}/joined"
                host.run(["sh", "-c", 'cat "$@" > "$0"', joined, *initrd])
                initrd = [joined]
            command = ["kexec", "--kexec-syscall-auto", "--load", kernel]
            command += [f"--initrd={path}" for path in initrd]
            command += [f"--command-line={files.line}"]
            try:
                host.run(command, seconds=LOAD_SECONDS)
            except CommandFailed as error:
                raise MachineError(
                    f"{host.name} cannot load {files.release} by kexec: {error.reason}: its "
                    "kernel may lack CONFIG_KEXEC, or be locked down by Secure Boot: take another "
                    "`via`"
                ) from error
            # It is in the kernel's memory now.
        finally:
            with contextlib.suppress(MachineError):
                host.run(["rm", "-rf", PUT])
        go(host, ["systemctl", "kexec"], ["kexec", "--exec"])
        yield

    def tidy(self, host: FarHost) -> None:
        """Nothing is left: the files were in the memory of the kernel before."""


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
        self._folder = options.folder
        self._files = str(PurePosixPath(options.folder).parent / "tailtap")

    @contextlib.contextmanager
    def boot(self, host: FarHost, files: Files) -> Iterator[None]:
        program = self._require(host)
        kernel, *initrd = brought(host, files, self._files)
        # The path as GRUB sees it, from the root of the file system that the files are in.
        seen = [
            host.run([f"{program}-mkrelpath", path]).stdout.strip() for path in (kernel, *initrd)
        ]
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
