"""Small files of /sys and /proc/sys: one value, written to one file or to many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.host.changes.resource import Joint, Value, read_text
from tailtap.host.changes.values import Form, same, writable
from tailtap.host.net.inside import inside, inside_those_left

T = TypeVar("T")


@dataclass(frozen=True)
class KernelValue(Joint):
    """The same `value` in all files that match `paths`."""

    kind: ClassVar[str] = "value"

    paths: Sequence[str]
    """Absolute; they may hold ``*``."""
    value: str
    form: Form = "text"
    """How the kernel writes the value."""
    namespace: str | None = None
    """The network namespace in which the files are seen; None for this process's own."""
    optional: bool = False
    """Whether files may refuse the value, such as affinities of interrupts that the kernel places.
    """
    root: str = "/"
    """What stands in for ``/`` in tests."""
    hint: str = ""
    """What an error begins with: what is not possible without this, and what it needs."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for what are no paths of files, and for no name of a namespace."""
        for path in self.paths:
            if not path.strip("/") or "\0" in path:
                raise ValueError(f"{path!r} is no file")
        if self.namespace is not None and (not self.namespace or "/" in self.namespace):
            raise ValueError(f"{self.namespace!r} is no network namespace")

    @property
    def label(self) -> str:
        """The paths, of many the first, and the namespace."""
        where = "" if self.namespace is None else f" in {self.namespace}"
        first, *more = self.paths
        paths = f"{first} and {len(more)} more" if len(more) > 2 else " ".join(self.paths)
        return f"{paths}{where}"

    @property
    def claims(self) -> Sequence[str]:
        """The files, unless they belong to a namespace of tailtap's own."""
        return [f"file {path}" for path in self.paths] if self.namespace is None else ()

    def read(self) -> dict[str, str]:
        """The content of each file that is there."""
        [found] = self.read_all([self])
        return found

    def plan(self) -> Value:
        """The value in each file."""
        return dict.fromkeys(self.paths, self.value)

    def apply(self) -> None:
        """Write it and read it back. Raises `MachineError` that names the file."""
        self.apply_all([self])

    @classmethod
    def read_all(cls, many: Sequence[KernelValue]) -> list[dict[str, str]]:
        """The content of each file of each that is there."""
        return _where_they_are(many, cls._read, {})

    @classmethod
    def apply_all(cls, many: Sequence[KernelValue]) -> None:
        """Write them and read them back. Raises `MachineError` that names the file."""
        if any(one.namespace is None for one in many):
            for one in many:
                one._apply()
        else:
            inside((str(one.namespace), one._apply) for one in many)

    @classmethod
    def undo_all(cls, many: Sequence[tuple[KernelValue, Value]]) -> list[str | None]:
        """Write the old content of each into files that still have the value."""
        old = {id(one): state for one, state in many}
        values = [one for one, _ in many]
        return _where_they_are(values, lambda one: one._undo(old[id(one)]), None)

    def _read(self) -> dict[str, str]:
        found = {str(path): read_text(path) for path in self._files()}
        return {f"/{Path(path).relative_to(self.root)}": text
                for path, text in found.items() if text is not None}  # fmt: skip

    def _apply(self) -> None:
        try:
            self._write_and_check()
        except MachineError as error:
            if not self.hint:
                raise
            raise error.at(self.hint) from error

    def _write_and_check(self) -> None:
        for file in self._files():
            # Writing what is there already is no change, yet it can restart a card.
            if not self._same(read_text(file) or "", self.value):
                self._write(file, self.value)
        answer = self._read()
        if self.optional:
            return
        if not answer:
            raise MachineError("there is no such file").at(self.label)
        for path, text in answer.items():
            if not self._same(text, self.value):
                raise MachineError(f"{path} should be {self.value}, but the kernel says {text}")

    def undo(self, old: Value, applied: Value = None) -> str | None:
        """Write the old content into files that still have the value."""
        return self.undo_all([(self, old)])[0]

    def _undo(self, old: Mapping[str, str]) -> str | None:
        changed: list[str] = []
        for path, text in self._read().items():
            before = old.get(path)
            if before is None or self._same(text, before):
                continue
            if not self._same(text, self.value):
                changed.append(f"{path} ({text}, before tailtap {before})")
            else:
                self._write(Path(self.root, path.lstrip("/")), writable(before, self.form))
        if not changed:
            return None
        return f"somebody else changed {', '.join(changed)}: it is left as it is"

    def pending(self, old: Value, applied: Value = None) -> bool:
        """Whether a file has another content than before."""
        return any(
            not self._same(text, old[path]) for path, text in self.read().items() if path in old
        )

    def _same(self, one: str, other: str) -> bool:
        return same(one, other, self.form)

    def _files(self) -> list[Path]:
        root = Path(self.root)
        with contextlib.suppress(OSError):  # of names that no file can have
            return sorted(file for path in self.paths for file in root.glob(path.lstrip("/")))
        return []

    def _write(self, path: Path, value: str) -> None:
        try:
            set_value(path, value)
        except OSError as error:
            if not self.optional:
                raise MachineError(f"{path} cannot be {value}: {error.strerror}") from error


def _where_they_are(
    many: Sequence[KernelValue], work: Callable[[KernelValue], T], gone: T
) -> list[T]:
    """What `work` returns of each, done in its namespace; `gone` where that is not there."""
    if all(one.namespace is None for one in many):
        return [work(one) for one in many]
    return inside_those_left(((str(one.namespace), partial(work, one)) for one in many), gone)
