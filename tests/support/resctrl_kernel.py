"""The kernel's side of resctrl, on files: what it does when a group is made, written and removed.

It checks and answers as fs/resctrl/rdtgroup.c and ctrlmondata.c of Linux 6.18 do: masks are
checked, refusals are in ``info/last_cmd_status``, cores are in one group at a time, bandwidth is
rounded up to a step, and values are shown with the spaces that the kernel puts in front of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.cpu import resctrl
from tailtap.host.cpu.resctrl import CACHE_LINES, parse_schemata

STEP = 10
"""Per cents of bandwidth."""


class Kernel:
    """The kernel of the machine below `root`."""

    def __init__(self, root: Path) -> None:
        self.top = root / "sys/fs/resctrl"
        self.closids = 16

    def make_group(self, folder: Path) -> None:
        """A group without cores, which may fill what no exclusive group has."""
        if len(self.groups) >= self.closids:
            self._refuse(folder, "Out of CLOSIDs")
        folder.mkdir()
        (folder / "cpus_list").write_text("\n")
        (folder / "mode").write_text("shareable\n")
        fresh = parse_schemata((self.top / "schemata").read_text())
        for line in set(CACHE_LINES) & set(fresh):
            for cache in fresh[line]:
                whole = int((self.top / "info" / line / "cbm_mask").read_text(), 16)
                for other in self.groups:
                    if (other / "mode").read_text() == "exclusive\n":
                        whole &= ~self._value(other, line, cache)
                fresh[line][cache] = f"{whole:x}"
        for cache in fresh.get("MB", {}):
            fresh["MB"][cache] = "100"
        self._show(folder, fresh)

    def remove_group(self, folder: Path) -> None:
        """Its cores go to the default group."""
        cpus = self._cpus(folder)
        shutil.rmtree(folder)
        self._put(self.top, self._cpus(self.top) | cpus)

    def write(self, file: Path, text: str) -> None:
        """A line for ``schemata`` or ``cpus_list``."""
        if file.name == "cpus_list":
            self._move(file.parent, set(parse_cpus(text)))
        else:
            assert file.name == "schemata", file
            self._set(file.parent, text)
        (self.top / "info/last_cmd_status").write_text("ok\n")

    @property
    def groups(self) -> list[Path]:
        """The folder of each group."""
        return [self.top, *(path.parent for path in self.top.glob("*/schemata"))]

    def _move(self, folder: Path, cpus: set[int]) -> None:
        before = self._cpus(folder)
        if dropped := before - cpus:
            if folder == self.top:
                self._refuse(folder, "Can't drop CPUs from default group")
            self._put(self.top, self._cpus(self.top) | dropped)
        for other in self.groups:
            if other != folder:
                self._put(other, self._cpus(other) - cpus)
        self._put(folder, cpus)

    def _set(self, folder: Path, text: str) -> None:
        shown = parse_schemata((folder / "schemata").read_text())
        for line, caches in parse_schemata(text).items():
            if line not in shown:
                self._refuse(folder, f"Unknown or unsupported resource name '{line}'")
            for cache, value in caches.items():
                if cache not in shown[line]:
                    self._refuse(folder, "Invalid argument")
                shown[line][cache] = self._checked(folder, line, cache, value)
        self._show(folder, shown)

    def _checked(self, folder: Path, line: str, cache: str, value: str) -> str:
        if line == "MB":
            return str(-(-int(value) // STEP) * STEP)
        mask, info = int(value, 16), self.top / "info" / line
        if not 0 < mask <= int((info / "cbm_mask").read_text(), 16):
            self._refuse(folder, "Mask out of range")
        bits = f"{mask:b}".rstrip("0")
        sparse = info / "sparse_masks"
        if "0" in bits and not (sparse.exists() and sparse.read_text() == "1\n"):
            self._refuse(folder, f"The mask {mask:x} has non-consecutive 1-bits")
        least = int((info / "min_cbm_bits").read_text())
        if len(bits.rpartition("0")[2]) < least:
            self._refuse(folder, f"Need at least {least} bits in the mask")
        for other in self.groups:
            if other != folder and mask & self._value(other, line, cache):
                if (other / "mode").read_text() == "exclusive\n":
                    self._refuse(folder, "Overlaps with exclusive group")
                if (folder / "mode").read_text() == "exclusive\n":
                    self._refuse(folder, "Overlaps with other group")
        return f"{mask:x}"

    def _show(self, folder: Path, values: dict[str, dict[str, str]]) -> None:
        width = max(map(len, values)) + 2
        rows = (
            f"{line:>{width}}:" + ";".join(f"{cache}={value}" for cache, value in caches.items())
            for line, caches in values.items()
        )
        (folder / "schemata").write_text("\n".join(rows) + "\n")

    def _value(self, folder: Path, line: str, cache: str) -> int:
        return int(parse_schemata((folder / "schemata").read_text())[line][cache], 16)

    def _cpus(self, folder: Path) -> set[int]:
        return set(parse_cpus((folder / "cpus_list").read_text()))

    def _put(self, folder: Path, cpus: set[int]) -> None:
        (folder / "cpus_list").write_text(f"{ranges(cpus)}\n")

    def _refuse(self, path: Path, status: str) -> None:
        (self.top / "info/last_cmd_status").write_text(f"{status}\n")
        raise MachineError(f"{path}: {status}")


def played(monkeypatch: pytest.MonkeyPatch, root: Path) -> Kernel:
    """The kernel of the machine below `root`, which from now on does what resctrl is told."""
    kernel = Kernel(root)
    for name in ("make_group", "remove_group", "write"):
        monkeypatch.setattr(resctrl, name, getattr(kernel, name))
    return kernel
