"""Kinds by name: those of tailtap, and those of other packages.

The kinds of one seam (platforms, forwarders, …) are the rows of one `Registry`. Other packages add
rows by entry points. This one, in a ``pyproject.toml``, adds a forwarder:

```
[project.entry-points."tailtap.forwarders"]
my-forwarder = "my_package:MyForwarder"
```

Entry points are read when the first name is looked up or listed, and a row is imported when it is
asked for. So a package that does not work stops nobody who does not use it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import AfterValidator, BaseModel

from tailtap.base.errors import Check, InputError, MachineError, TailtapError, did_you_mean, shown

Row = TypeVar("Row")

OURS = "tailtap"
"""The package of the built-in rows."""


class Kind(Protocol):
    """What a kind says of itself, whatever it is a kind of."""

    summary: str
    """What it is, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    def diagnose(self) -> Iterator[Check]:
        """The checks of `tailtap doctor`: find out whether it works here. Leaves nothing behind."""
        ...


@dataclass
class OwnKind:
    """A kind of ours that opens what its options name."""

    summary: str
    documentation: str
    Options: type[BaseModel]
    open: Callable[..., Any]
    needs: Callable[[], Check]
    """Whether what it calls is there."""

    def diagnose(self) -> Iterator[Check]:
        """Its one check."""
        yield self.needs()


class Registry(Mapping[str, Row], Generic[Row]):
    """The rows of one seam by name: the built-in ones first, then those of other packages."""

    def __init__(
        self,
        what: str,
        group: str,
        seam: type,
        built_in: Callable[[], Mapping[str, Row]],
        *,
        classes: bool = False,
    ) -> None:
        """`what` one row is called in messages, and the `group` of its entry points.

        `seam` is the protocol that rows follow, and `built_in` imports and returns our own rows.
        With `classes` a row is a class, not an object of it.
        """
        self.what, self.group = what, group
        self._classes = classes
        members = {
            name for part in seam.__mro__ for name in (*inspect.get_annotations(part), *vars(part))
        }
        self._members = sorted(name for name in members if not name.startswith("_"))
        self._built_in = functools.cache(built_in)
        self._loaded: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        """The row of that name.

        Raises `KeyError` when there is none, and `MachineError`, which names the package, when it
        cannot be loaded or when several packages have a row of that name.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """The names; no row of another package is imported."""
        return iter(dict.fromkeys([*self._built_in(), *self._others]))

    def __len__(self) -> int:
        """How many names there are."""
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is a row of that name, which may not work."""
        return name in self._built_in() or name in self._others

    def working(self) -> Iterator[tuple[str, Row]]:
        """Every name and row, without the rows that cannot be loaded."""
        for name in self:
            try:
                yield name, self[name]
            except TailtapError:
                continue

    def package(self, name: str) -> str:
        """The name of the package that the row is from."""
        if name in self._built_in():
            return OURS
        return _package(self._others[name][0])

    def chosen(self, key: str, options: Mapping[str, Any]) -> tuple[Row, Any]:
        """The row that `options` name at `key`, and the others of them as the row's `Options`.

        Raises `InputError` for a name that is missing or not known, and pydantic's
        `ValidationError`, whose places are the keys of `options`.
        """
        name = options.get(key)
        if name is None:
            raise InputError(f"this key is missing: it is one of {', '.join(self)}").at(key)
        if not isinstance(name, str) or name not in self:
            known = did_you_mean(str(name), self)
            raise InputError(f"there is no {self.what} {name!r}: {known}").at(key)
        row = self[name]
        rest = {other: value for other, value in options.items() if other != key}
        return row, cast("Any", row).Options.model_validate(rest)

    @functools.cached_property
    def _others(self) -> Mapping[str, list[metadata.EntryPoint]]:
        found: dict[str, list[metadata.EntryPoint]] = {}
        for point in _select_entry_points()(group=self.group):
            found.setdefault(point.name, []).append(point)
        return found

    def _load(self, name: str) -> Row:
        points = self._others.get(name, [])
        packages = [OURS] if name in self._built_in() else []
        packages += [_package(point) for point in points]
        if len(packages) > 1:
            raise MachineError(
                f"there are several kinds of {self.what} called {name!r}, in the packages "
                f"{' and '.join(packages)}: uninstall all but one"
            )
        if not points:
            return self._built_in()[name]
        return self._imported(points[0])

    def _imported(self, point: metadata.EntryPoint) -> Row:
        try:
            found = point.load()
            row = found() if isinstance(found, type) and not self._classes else found
        except Exception as error:  # whatever a package of others does when it is imported
            raise self._unusable(point, f"{type(error).__name__}: {error}") from error
        lacking = [name for name in self._members if not hasattr(row, name)]
        if lacking:
            raise self._unusable(point, f"it has no {', '.join(lacking)}")
        return cast("Row", row)

    def _unusable(self, point: metadata.EntryPoint, reason: str) -> MachineError:
        words = " ".join(reason.split())
        return MachineError(
            f"the {self.what} {point.name} of the package {_package(point)} cannot be used: "
            f"{words}: repair or uninstall that package"
        )


@functools.cache
def _select_entry_points() -> Callable[..., Iterable[metadata.EntryPoint]]:
    """Selects among those of all installed packages, whose files are read once."""
    return metadata.entry_points().select


def one_of(registry: Callable[[], Registry[Row]]) -> AfterValidator:
    """A validator of a name in an experiment file: one of `registry`, which is asked for late."""

    def check(value: str) -> str:
        known = registry()
        if value not in known:
            raise ValueError(
                f"there is no {known.what} {shown(value)}: {did_you_mean(value, known)}"
            )
        return value

    return AfterValidator(check)


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
