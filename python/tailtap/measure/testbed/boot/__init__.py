"""How hosts are booted: one file a way, one row in `WAYS`.

A way boots a host once with a kernel and a command line. What the host boots by default stays as it
is, so that a power cycle brings that back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from tailtap.base.check import Check
from tailtap.base.errors import InputError, MachineError
from tailtap.base.registry import Registry
from tailtap.base.schema import Strict, Time, as_value_error
from tailtap.base.suggest import did_you_mean
from tailtap.lab.platforms.boot import check_boot
from tailtap.remote import CommandFailed, NoAnswer, ProgramMissing

if TYPE_CHECKING:  # it reads the testbed file, which names ways
    from tailtap.measure.testbed.far import FarHost


class BootOptions(Strict):
    """How a host is booted. The way declares further keys."""

    via: str = Field(
        description="The way: kexec, grub or ipxe, which docs/reference/kinds.md describes.",
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
        own = {key: value for key, value in data.items() if key not in cls.model_fields}
        options = handler({key: value for key, value in data.items() if key not in own})
        with as_value_error():
            checked({"via": options.via, **own})
        options._own = own
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


__all__ = ["WAYS", "Files", "Way", "WayKind", "checked"]


@dataclass(frozen=True)
class Files:
    """What a host is booted with."""

    kernel: str
    """The path of the kernel: here where it is one of `ours`, else on the host."""
    initrd: str | None
    """The path of the initial RAM disk in the same place."""
    release: str
    """What ``uname -r`` prints then."""
    line: str
    """The whole command line."""
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


class WayKind(Protocol):
    """One kind of way."""

    summary: str
    """What it is, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    Options: type[BaseModel]
    """The keys beside those that all ways have."""

    def diagnose(self) -> Iterator[Check]:
        """The checks of `tailtap doctor`: whether what it needs here is there."""
        ...

    def open(self, name: str, options: BaseModel) -> Way:
        """The way of the host `name`. Nothing is done yet."""
        ...


def _built_in() -> Mapping[str, WayKind]:
    from tailtap.measure.testbed.boot.grub import GrubKind
    from tailtap.measure.testbed.boot.ipxe import IpxeKind
    from tailtap.measure.testbed.boot.kexec import KexecKind

    return {"kexec": KexecKind(), "grub": GrubKind(), "ipxe": IpxeKind()}


WAYS: Registry[WayKind] = Registry("boot way", "tailtap.boot_ways", WayKind, _built_in)
"""Every way to boot by its name."""


def checked(options: Mapping[str, Any]) -> tuple[WayKind, BaseModel]:
    """The kind and the options of ``{via: kexec, …}``.

    Raises `InputError` for a way that is not known, and pydantic's `ValidationError`.
    """
    via = options.get("via")
    if not isinstance(via, str) or via not in WAYS:
        raise InputError(f"via: there is no boot way {via!r}: {did_you_mean(str(via), WAYS)}")
    row = WAYS[via]
    rest = {key: value for key, value in options.items() if key != "via"}
    return row, row.Options.model_validate(rest)
