"""What an import makes a run folder of, whatever files of others that comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.partial import Partial
from tailtap.base.errors import InputError
from tailtap.base.files import slugify
from tailtap.base.foreign import require_regular, storable
from tailtap.records.interrupts import read_samples
from tailtap.records.record import Notice, opened
from tailtap.records.run import Parameters, RunRecord

MOST_NAME = 200
"""Letters of a run folder's name: a file system takes 255 bytes."""
DAMAGED = (OSError, ValueError, LookupError, TypeError, ArithmeticError, pa.ArrowException)


@dataclass(frozen=True)
class Content:
    """What the files of a run say. All is None where none says anything."""

    evaluation: Evaluation | Partial | None = None
    captures: tuple[Path, Path] | None = None
    """Those that it was evaluated from."""
    samples: Path | None = None
    """Samples of the device's interrupts."""


class Importable(Protocol):
    """A run that others measured."""

    warnings: list[Notice]
    """What is wrong with its files; `read` adds to it."""

    @property
    def source(self) -> str:
        """Where it is. An import replaces what was imported from the same source."""

    @property
    def digest(self) -> str | None:
        """What it is known by wherever it lies, once it was read; None when nothing can be."""

    def read(self) -> Content:
        """Its results. Damaged files are warnings, not errors."""

    def record(self, experiment: str) -> RunRecord:
        """Its record, less its number and warnings, once it was read.

        `experiment` is the name of the tree, for runs that have no better one.
        """


def record_of(
    parts: list[str],
    experiment: str,
    repeat: int,
    variables: Mapping[str, object],
    parameters: Mapping[str, object],
    error: str | None = None,
) -> RunRecord:
    """The record of an imported run, whose folder is called as the `parts` of its name."""
    slug = "-".join(part for part in map(slugify, parts) if part)[:MOST_NAME].strip("-.")
    asked: dict[str, Any] = storable(dict(parameters))
    return RunRecord(
        number=0,
        slug=slug or "run",
        repeat=repeat,
        variables=storable(dict(variables)),
        parameters=opened(f"the parameters of {slug}", asked, Parameters),
        name=storable(experiment),
        status="imported",
        error=storable(error),
        warnings=[],
    )


def evaluated(
    captures: tuple[Path, Path],
    root: Path,
    warnings: list[Notice],
    digest: Any,
    *,
    trim_ns: int = 0,
    bucket_ns: int = 100,
) -> Evaluation | None:
    """The evaluation of two captures below `root`; None, and a warning, where there is none."""
    before, behind = captures
    if not behind.exists():
        warnings.append(
            Notice("file-missing", f"{before}: skipped, there is no {behind.name} beside it")
        )
        return None
    try:
        for path in captures:
            require_regular(path, root)
            digest.update(f"\n{storable(path.name)} {path.stat().st_size}\n".encode())
        return evaluate(before, behind, trim_ns=trim_ns, bucket_ns=bucket_ns)
    except (OSError, ValueError, InputError) as error:
        warnings.append(Notice("file-damaged", f"{before}: skipped: {error}"))
        return None


def sampled(path: Path | None, root: Path, warnings: list[Notice]) -> Path | None:
    """A file with samples of interrupts, if it can be read."""
    if path is None:
        return None
    try:
        require_regular(path, root)
        read_samples(path)
    except (OSError, ValueError, InputError) as error:
        warnings.append(Notice("file-damaged", f"{path}: skipped: {error}"))
        return None
    return path
