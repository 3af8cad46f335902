"""What a crate of the RISE profile says of an experiment: who made it, where, when each run was.

The profile (https://tumi8.github.io/rise-ro-crate-profile/1.0.0/) is RO-Crate 1.2 with types for
experiments. `ro-crate-metadata.json` is a flat list of entities that refer to each other by `@id`;
what lies in the crate has its path as `@id`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from tailtap.results.importers.pos.tree import CRATE, read_mapping

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
