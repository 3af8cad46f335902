"""Where result trees of pos are, and their `.loop` files: one a host and run, with its variables.

Two layouts exist. Earlier versions had all files of a host in `HOST/`; pos 3 has what it executed
in `scripts/HOST/` and what scripts uploaded in `files/HOST/`. Both have `config/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from tailtap.base.foreign import METADATA_BYTES, files_below, parse_json, parse_yaml, read_bytes
from tailtap.records.record import Notice

ALLOCATION = "config/allocation.json"
CRATE = "ro-crate-metadata.json"
#: Folders of pos 3 that hold one folder for each host.
BY_HOST = ("scripts", "files", "config")
#: A status is a word.
STATUS_BYTES = 10_000
_LOOP = re.compile(r"(?P<command>.+)_run(?P<digits>\d+)\.loop")
_COMMAND = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_(?P<name>.+)")
_RUN = re.compile(r"_run(\d+)(?!\d)")


@dataclass(frozen=True)
class Loop:
    """What one host did in one run of a loop."""

    host: str
    command: str
    """What the names of its files begin with: when the command began, and its name."""
    digits: str
    path: Path
    variables: Mapping[str, Any]
    root: Path
    """The folder of its tree."""

    @property
    def number(self) -> int:
        """The number of the run in its loop, from 0."""
        return int(self.digits)

    @property
    def stem(self) -> str:
        """The path of its files without what differs between them."""
        return str(self.path.with_suffix(""))

    @property
    def status(self) -> str | None:
        """How the command ended in pos' words; None where nothing tells."""
        try:
            said = read_bytes(self.path.with_suffix(".status"), self.root, STATUS_BYTES)
        except (OSError, ValueError):
            return None
        return said.decode(errors="replace").strip() or None


@dataclass
class Files:
    """The files of one result tree."""

    root: Path
    paths: list[Path] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)

    def host_of(self, path: Path) -> str | None:
        """The host that a file belongs to; None where it is of none."""
        parts = path.relative_to(self.root).parts
        if len(parts) == 1:
            return self.root.name
        if parts[0] in BY_HOST:
            return parts[1] if len(parts) > 2 else None
        return parts[0]

    @cached_property
    def loops(self) -> list[Loop]:
        """All `.loop` files that can be read, in the order of command and run."""
        found = []
        for path in self.paths:
            match = _LOOP.fullmatch(path.name)
            host = self.host_of(path)
            if match is None or host is None:
                continue
            try:
                variables = read_mapping(path, self.root)
            except (OSError, ValueError) as error:
                self.damaged(path, f"{error}; its variables are unknown")
                continue
            found.append(Loop(host, match["command"], match["digits"], path, variables, self.root))
        return sorted(found, key=lambda loop: (loop.command, loop.host, loop.number))

    @cached_property
    def allocation(self) -> Mapping[str, Any]:
        """The content of `config/allocation.json`; empty where it cannot be read."""
        path = self.root / ALLOCATION
        return self._read(path) if path.is_file() else {}

    @cached_property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the experiment: those of the `loop`, `global` ones, those of hosts."""
        within = self.allocation.get("variables")
        if isinstance(within, dict):
            return within
        later = [path for path in self.paths if path.parent == self.root / "config"
                 and re.search(r"variables\.(json|ya?ml)$", path.name)]  # fmt: skip
        return self._read(later[-1]) if later else {}

    @cached_property
    def by_number(self) -> dict[int, list[Path]]:
        """Files with the number of a run in their name, or in that of a folder, by that number."""
        found: dict[int, list[Path]] = {}
        for path in self.paths:
            for part in reversed(path.relative_to(self.root).parts):
                match = _RUN.search(part)
                if match is not None:
                    found.setdefault(int(match[1]), []).append(path)
                    break
        return found

    def damaged(self, path: Path, reason: str) -> None:
        """Warn about a file that cannot be read."""
        self.warnings.append(
            Notice("file-damaged", f"{path}: skipped, it cannot be read: {_line(reason)}")
        )

    def _read(self, path: Path) -> Mapping[str, Any]:
        try:
            return read_mapping(path, self.root)
        except (OSError, ValueError) as error:
            self.damaged(path, str(error))
            return {}


def read_mapping(path: Path, root: Path) -> dict[str, Any]:
    """The mapping in a file of pos in the folder `root`: JSON, or YAML as older versions wrote it.

    Raises `OSError`, or `ValueError` when it holds no mapping.
    """
    content = _parsed(read_bytes(path, root, METADATA_BYTES).decode())
    try:
        # What JSON cannot say, such as a date of YAML or half a character, no database holds.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except TypeError as error:
        raise ValueError(f"it holds what is no JSON: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError("it holds no JSON object")
    return content


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as broken:
        try:
            return parse_yaml(text)
        except ValueError as other:
            raise ValueError(f"it is no JSON: {broken}; {other}") from broken


def find_trees(top: Path) -> list[Files]:
    """All result trees in the folder `top`, each with its files, in the order of their paths."""
    top = top.resolve()
    paths = files_below(top)
    roots = set(_roots(top, paths))
    found = {root: Files(root) for root in sorted(roots)}
    for path in paths:
        root = next((folder for folder in path.parents if folder in roots), None)
        if root is not None:
            found[root].paths.append(path)
    return list(found.values())


def _roots(top: Path, paths: Iterable[Path]) -> Iterable[Path]:
    loops = []
    roots = set()
    for path in paths:
        if path.name == CRATE and is_crate(path, top):
            roots.add(path.parent)
        elif path.match(ALLOCATION) and path.parent != top:
            roots.add(path.parent.parent)
        elif _LOOP.fullmatch(path.name):
            loops.append(path)
    for path in loops:
        if not roots & set(path.parents):
            host = path.parent
            root = host.parent.parent if host.parent.name in BY_HOST else host.parent
            roots.add(root if root.is_relative_to(top) else top)
    return roots


def is_crate(path: Path, top: Path) -> bool:
    """Whether a crate's metadata are of an experiment, by the words that only those have.

    Damaged metadata are told from those of others by their words, too.
    """
    try:
        text = read_bytes(path, top, METADATA_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return False
    return "LoopRun" in text or "rise-ro-crate-profile" in text


def command_name(command: str) -> str:
    """The name of a command, without the time at which it began."""
    match = _COMMAND.fullmatch(command)
    return match["name"] if match else command


def _line(text: str) -> str:
    return (text.strip() or "nothing tells why").splitlines()[0]


#: Beginnings of the types whose entities are files or folders of the crate.
_FILES = ("File", "LoopRun", "CommandFile", "Dataset", "Experiment")
_NO_FILES = ("ExperimentNode",)

Entity = Mapping[str, Any]


@dataclass(frozen=True)
class Crate:
    """The entities of a crate, by their `@id`."""

    folder: Path
    entities: Mapping[str, Entity]

    @property
    def root(self) -> Entity:
        """The crate itself."""
        return self.entities.get("./", {})

    @property
    def name(self) -> str:
        """The name of the experiment; empty where it says none."""
        return str(self.root.get("name") or "")

    @property
    def authors(self) -> tuple[str, ...]:
        """The names of its authors."""
        return tuple(self._named("author"))

    @property
    def licence(self) -> str | None:
        """The short name of its licence, else its address."""
        return next(iter(self._named("license")), None)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Where it is archived, such as a DOI."""
        return tuple(_ids(self.root.get("archivedAt")))

    @property
    def experiment(self) -> Entity:
        """The experiment that the crate is of."""
        return next((one for one in self._typed("Experiment")), {})

    def description(self) -> dict[str, Any]:
        """All of that, with the hosts and images, for the parameters of each run."""
        people = [self.entities.get(one, {"@id": one}) for one in _ids(self.root.get("author"))]
        controllers = [
            f"{one.get('name', one['@id'])} {one.get('version', '')}".strip()
            for one in self._of(self.experiment, "experimentController")
        ]
        return {
            "name": self.name,
            "description": self.root.get("description"),
            "authors": [{"name": one.get("name"), "id": one["@id"]} for one in people],
            "licence": self.licence,
            "identifiers": list(self.identifiers),
            "published": self.root.get("datePublished"),
            "controller": controllers,
            "images": [one["@id"] for one in self._typed("OSImage")],
        }

    def times(self, path: Path) -> dict[str, str]:
        """When a loop run began and ended, in the crate's words; empty where it does not say."""
        entity = self.entities.get(path.relative_to(self.folder).as_posix(), {})
        names = {"start": "startTime", "end": "endTime"}
        return {ours: str(entity[theirs]) for ours, theirs in names.items() if theirs in entity}

    def missing(self) -> list[str]:
        """The files and folders that it names and that are not there."""
        return [
            name
            for name, entity in self.entities.items()
            if name != "./"
            and "://" not in name
            and _is_file(entity)
            and not self._has(unquote(name))
        ]

    def _has(self, name: str) -> bool:
        """Whether a file or folder is in the crate, or a link that may lead elsewhere."""
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            return False
        try:
            return os.path.lexists(self.folder / name)
        except (OSError, ValueError):  # a name that no file can have
            return False

    def count(self, kind: str) -> int:
        """How many entities of a type it has."""
        return sum(1 for _ in self._typed(kind))

    def _typed(self, kind: str) -> Iterator[Entity]:
        return (one for one in self.entities.values() if kind in _types(one))

    def _of(self, entity: Entity, key: str) -> list[Entity]:
        return [self.entities.get(one, {"@id": one}) for one in _ids(entity.get(key))]

    def _named(self, key: str) -> Iterator[str]:
        given = self.root.get(key)
        if isinstance(given, str):
            yield given
        for one in self._of(self.root, key):
            # A person's other name is the login; a licence's is what everybody calls it.
            name = one.get("alternateName") if key == "license" else None
            yield str(name or one.get("name") or one["@id"])


def read_crate(folder: Path) -> Crate | None:
    """The crate in a folder; None where there is none.

    Raises `OSError`, or `ValueError` when its metadata are damaged.
    """
    path = folder / CRATE
    if not path.is_file():
        return None
    graph = read_mapping(path, folder).get("@graph")
    if not isinstance(graph, list):
        raise ValueError("it has no @graph")
    entities = {str(one["@id"]): one for one in graph if isinstance(one, dict) and one.get("@id")}
    return Crate(folder, entities)


def _types(entity: Entity) -> list[str]:
    kinds = entity.get("@type")
    return [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]


def _is_file(entity: Entity) -> bool:
    return any(kind.startswith(_FILES) and kind not in _NO_FILES for kind in _types(entity))


def _ids(value: object) -> Iterable[str]:
    """The `@id` of each entity that a property refers to."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict) and one.get("@id"):
            yield str(one["@id"])
