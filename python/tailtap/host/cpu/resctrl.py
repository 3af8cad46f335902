"""The file system's folders and files: groups made and removed, lines written.

A refusal says what the kernel wrote to ``info/last_cmd_status``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.locks import holder, lock
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.changes.resource import Resource, Value, left_as_it_is
from tailtap.remote.local import LocalHost

FOLDER = "/sys/fs/resctrl"
WAIT_SECONDS = 10.0
"""Who divides a cache is done sooner."""


def make_group(folder: Path) -> None:
    """A new group; the kernel gives it no cores. Raises `MachineError`."""
    with _told(folder, "cannot be made"):
        folder.mkdir()


def remove_group(folder: Path) -> None:
    """Remove a group; the kernel gives its cores to the default group. Raises `MachineError`."""
    with _told(folder, "cannot be removed"):
        folder.rmdir()


def write(file: Path, text: str) -> None:
    """Write a line to a group's file. Raises `MachineError` with what the kernel says."""
    with _told(file, f"cannot be {text}"):
        set_value(file, f"{text}\n")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock that programs which divide caches agree on; a lock of the folder.

    Raises `MachineError` where another one keeps it.
    """
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise MachineError(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        if not lock(held, folder, WAIT_SECONDS):
            raise MachineError(f"{folder} stays locked by {holder(held)}: end it")
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        top = next((one for one in path.parents if (one / "info").is_dir()), path)
        said = read_text(top / "info/last_cmd_status")
        reason = error.strerror if said in (None, "", "ok") else said
        raise MachineError(f"{path} {what}: {reason}") from error


CACHE_LINES = ("L3", "L3CODE", "L3DATA")

Values = Mapping[str, Mapping[str, str]]
"""What a file ``schemata`` says: of each line, such as ``L3`` or ``MB``, the value by cache."""


def parse_schemata(text: str) -> dict[str, dict[str, str]]:
    """The values in a file ``schemata``; of a group that has none yet, nothing."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        name, _, caches = line.strip().partition(":")
        parts = (part.partition("=") for part in caches.split(";"))
        found[name] = {cache.strip(): value.strip() for cache, equals, value in parts if equals}
    return found


def number(line: str, value: str) -> int:
    """A value of a line: ways are hexadecimal."""
    return int(value, 16 if line in CACHE_LINES else 10)


def is_mask(ways: int, least: int, *, sparse: bool) -> bool:
    """Whether the kernel takes `ways`: at least `least` in a row, and all of them unless `sparse`.

    As the kernel's own check in fs/resctrl/ctrlmondata.c.
    """
    lowest = ways & -ways
    row = ((ways + lowest) & ~ways) - lowest if ways else 0
    return row.bit_count() >= max(1, least) and (sparse or row == ways)


def own_ways(
    rests: Sequence[int], taken: int, count: int, least: int, *, sparse: bool
) -> int | None:
    """The lowest `count` ways in a row that all of `rests` have, and that are not in `taken`.

    What remains of each of `rests` must be a mask, too. None when there are no such ways.
    """
    for low in range(max(rests).bit_length() - count + 1):
        row = ((1 << count) - 1) << low
        if not row & taken and all(
            row & rest == row and is_mask(rest & ~row, least, sparse=sparse) for rest in rests
        ):
            return row
    return None


@dataclass(frozen=True)
class ResctrlMount(Resource):
    """The file system, mounted; taken away again unless somebody else has made groups in it."""

    kind: ClassVar[str] = "resctrl"

    folder: str = FOLDER

    @property
    def label(self) -> str:
        return self.folder

    @property
    def claims(self) -> Sequence[str]:
        return ["resctrl mount"]

    def read(self) -> bool:
        return Path(self.folder, "schemata").exists()

    def apply(self) -> None:
        LocalHost().run(["mount", "-t", "resctrl", "resctrl", self.folder])
        if not self.read():
            raise MachineError(f"{self.folder} was mounted, and has no schemata")

    def undo(self, old: Value, applied: Value = None) -> str | None:
        if old or not self.read():
            return None
        others = sorted(path.parent.name for path in Path(self.folder).glob("*/schemata"))
        if others:
            return f"somebody else has made {', '.join(others)} in {self.folder}: it stays mounted"
        LocalHost().run(["umount", self.folder])
        return None


GROUP = "tailtap"
"""The folder of our group. One device at a time is measured on a machine."""
FEWEST_WAYS = 2
"""With a single way, two addresses that fall into one set displace each other."""


@dataclass(frozen=True)
class ResourceGroup(Resource):
    """A group of resctrl with the cores of a device, and what other cores give up for it.

    What it makes is a function of what was there, so that it can be undone by that alone.
    """

    kind: ClassVar[str] = "resctrl group"

    cpus: str
    """As the kernel writes them."""
    shares: Mapping[str, Sequence[int]]
    """Of each cache of these, how many of them fill it, and how many cores in all."""
    ways: bool = False
    """Whether it has ways of its own, as many of a cache as its share of the cores."""
    bandwidth: int | None = None
    """The per cent of the memory's bandwidth that other cores may use."""
    root: str = "/"

    @property
    def label(self) -> str:
        return f"{FOLDER}/{GROUP} for CPUs {self.cpus}"

    @property
    def claims(self) -> Sequence[str]:
        return ["resctrl"]

    @property
    def _folder(self) -> Path:
        return Path(self.root, FOLDER.lstrip("/"))

    def read(self) -> dict[str, Any] | None:
        """The default group, ours, what others have, and what masks may be; None if not mounted."""
        folder = self._folder
        if not (folder / "schemata").exists():
            return None
        names = sorted(path.parent.name for path in folder.glob("*/schemata"))
        # With code and data apart there is a folder for each; masks may be the same of both.
        info = next(
            (folder / "info" / line for line in CACHE_LINES if (folder / "info" / line).exists()),
            folder / "info/L3",
        )
        return {
            "default": _group(folder),
            "own": _group(folder / GROUP) if GROUP in names else None,
            "others": {name: _group(folder / name) for name in names if name != GROUP},
            "least": int(read_text(info / "min_cbm_bits") or "1"),
            "hardware": read_text(info / "shareable_bits") or "0",
            "sparse": read_text(info / "sparse_masks") == "1",
        }

    def plan(self) -> Value:
        found = self.read()
        return None if found is None else self.wanted(found)

    def wanted(self, found: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
        """The values that the groups ``default`` and ``own`` are to have, where `found` was read.

        Raises `MachineError` when a core is in somebody else's group, or no ways are left.
        """
        for name, other in found["others"].items():
            if both := set(parse_cpus(other["cpus"])) & set(parse_cpus(self.cpus)):
                raise MachineError(
                    f"CPU {ranges(both)} belongs to the group {name} in {FOLDER}, which is "
                    "somebody else's"
                )
        result: dict[str, dict[str, dict[str, str]]] = {"default": {}, "own": {}}
        for cache, (mine, everybody) in self.shares.items():
            if self.ways:
                own, rests = self._divided(found, cache, mine, everybody)
                for line, rest in rests.items():
                    result["own"].setdefault(line, {})[cache] = f"{own:x}"
                    result["default"].setdefault(line, {})[cache] = f"{rest:x}"
            if self.bandwidth is not None and cache in found["default"]["schemata"].get("MB", {}):
                result["default"].setdefault("MB", {})[cache] = str(self.bandwidth)
        return result

    def _divided(
        self, found: Mapping[str, Any], cache: str, mine: int, everybody: int
    ) -> tuple[int, dict[str, int]]:
        """The ways of the group in a cache, and what remains for the default group by line."""
        rests = {
            line: _ways(found["default"], line, cache) | _ways(found["own"], line, cache)
            for line in CACHE_LINES
            if cache in found["default"]["schemata"].get(line, {})
        }
        if not rests:
            raise MachineError(f"{FOLDER} does not divide cache {cache}")
        taken = int(found["hardware"], 16)
        for other in found["others"].values():
            for line in CACHE_LINES:
                taken |= _ways(other, line, cache)
        fewest = max(FEWEST_WAYS, found["least"])
        most = -(-max(rests.values()).bit_count() * mine // everybody)
        for count in range(max(fewest, most), fewest - 1, -1):
            options = (list(rests.values()), taken, count, found["least"])
            if own := own_ways(*options, sparse=found["sparse"]):
                return own, {line: rest & ~own for line, rest in rests.items()}
        raise MachineError(
            f"no {fewest} ways in a row of cache {cache} are left beside those of devices, of "
            f"other groups in {FOLDER}, and of the other cores"
        )

    def apply(self) -> None:
        folder = self._folder
        with locked(folder):
            found = self.read()
            if found is None:
                raise MachineError(f"{FOLDER} is not mounted")
            wanted = self.wanted(found)
            if found["own"] is None:
                make_group(folder / GROUP)
            _write_values(folder / GROUP, wanted["own"])
            _write_values(folder, wanted["default"])
            write(folder / GROUP / "cpus_list", self.cpus)
            after = self.read() or {}
        for group, values in wanted.items():
            for line, cache, value in _each(values):
                said = after[group]["schemata"][line][cache]
                if number(line, said) != number(line, value):
                    raise MachineError(
                        f"{line} of cache {cache} should be {value} in the group {group}, but the "
                        f"kernel says {said}"
                    )
        if parse_cpus(after["own"]["cpus"]) != parse_cpus(self.cpus):
            raise MachineError(f"the kernel says CPUs {after['own']['cpus']}").at(self.label)

    def undo(self, old: Value, applied: Value = None) -> str | None:
        if old is None or not self._folder.exists():
            return None
        with locked(self._folder):
            now = self.read()
            try:
                wanted = self.wanted(old)
            except MachineError:  # then nothing was done
                return None
            if now is None:
                return None
            said = [*self._own_back(old["own"], now["own"], wanted["own"])]
            said += _values_back(self._folder, old["default"], now["default"], wanted["default"])
        return left_as_it_is(said)

    def _own_back(self, old: Any, now: Any, wanted: Values) -> Iterator[str]:
        folder = self._folder / GROUP
        if now is None:
            return
        has, mine = set(parse_cpus(now["cpus"])), set(parse_cpus(self.cpus))
        if old is None and has in (set(), mine):
            remove_group(folder)
        elif old is None:
            yield f"{folder} (CPUs {now['cpus']})"
        else:
            yield from _values_back(folder, old, now, wanted)
            if has == mine:
                write(folder / "cpus_list", old["cpus"])
            elif has != set(parse_cpus(old["cpus"])):
                yield f"{folder} (CPUs {now['cpus']}, before tailtap {old['cpus']})"

    def pending(self, old: Value, applied: Value = None) -> bool:
        now = self.read()
        if old is None or now is None:
            return False
        default = (now["default"]["schemata"], old["default"]["schemata"])
        return bool(now["own"] != old["own"] or default[0] != default[1])


def _group(folder: Path) -> dict[str, Any]:
    schemata = read_text(folder / "schemata") or ""
    return {"cpus": read_text(folder / "cpus_list") or "", "schemata": parse_schemata(schemata)}


def _ways(group: Mapping[str, Any] | None, line: str, cache: str) -> int:
    value = None if group is None else group["schemata"].get(line, {}).get(cache)
    return 0 if value is None else int(value, 16)


def _each(values: Values) -> Iterator[tuple[str, str, str]]:
    for line, caches in values.items():
        for cache, value in caches.items():
            yield line, cache, value


def _write_values(folder: Path, values: Values) -> None:
    for line, caches in values.items():
        text = ";".join(f"{cache}={value}" for cache, value in caches.items())
        write(folder / "schemata", f"{line}:{text}")


def _values_back(folder: Path, old: Any, now: Any, wanted: Values) -> list[str]:
    """Write those back that still are as `wanted`; what somebody else has changed."""
    back: dict[str, dict[str, str]] = {}
    changed: list[str] = []
    for line, cache, value in _each(wanted):
        before, said = (group["schemata"][line][cache] for group in (old, now))
        if number(line, said) == number(line, before):
            continue
        if number(line, said) == number(line, value):
            back.setdefault(line, {})[cache] = before
        else:
            changed.append(f"{line} of cache {cache} in {folder} ({said}, before tailtap {before})")
    _write_values(folder, back)
    return changed
