"""How hosts are booted: one file a way, one row in `WAYS`.

A way boots a host once with a kernel and a command line. What the host boots by default stays as it
is, so that a power cycle brings that back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.errors import InputError
from tailtap.base.registry import Registry
from tailtap.base.suggest import did_you_mean

if TYPE_CHECKING:  # it reads the testbed file, which names ways
    from tailtap.measure.testbed.far import FarHost

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
