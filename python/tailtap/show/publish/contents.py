"""What of an experiment's folder is published: which files, and what of them is replaced."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.tables import read_any
from tailtap.analysis.runs.folder import RAW
from tailtap.analysis.runs.reader import read_runs
from tailtap.base.document import FileKind, load
from tailtap.base.files import drafted, make_folder, read_json
from tailtap.base.foreign import (
    RECORD_BYTES,
    files_below,
    open_file,
    parse_json,
    read_bytes,
)
from tailtap.show.publish.redaction import Redactor, packet_addresses

HOLDS_PACKETS = ".pcap"
TEXTS = (".log", ".txt", ".csv", ".md")
DRAWN = (".png", ".svg", ".pdf")
TOP = ("experiment.yaml", "plan.json", "testbed.yaml", "search.json", "comparison.json")
"""Files of the experiment's own folder."""
PARTS = ("runs", "latency", "trials")
"""Folders with all that was measured; those of a search are the last two."""
TESTBED = FileKind("testbed", "a testbed is a mapping with hosts, cables and roles")
UNREADABLE = "it cannot be read"


@dataclass(frozen=True)
class Source:
    """A file of the experiment, and its path in the site."""

    path: Path
    name: str

    @property
    def raw(self) -> bool:
        """Whether it is a measurement itself."""
        return any(self.path.match(pattern) for pattern in RAW)


@dataclass
class Contents:
    """The files of an experiment's folder, read once each."""

    folder: Path
    left_out: dict[str, str] = field(default_factory=dict)

    @cached_property
    def imported(self) -> frozenset[Path]:
        """The run folders of others: whoever measured them publishes them."""
        folders = (run.own_folder for run in read_runs(self.folder).imported)
        return frozenset(folder for folder in folders if folder is not None)

    @property
    def places(self) -> Sequence[str]:
        """What its files call the folder, the longest first: now, and when runs were evaluated."""
        found = {str(self.folder.absolute()), str(self.folder.resolve())}
        for run in read_runs(self.folder).runs:
            if run.own_folder is not None and isinstance(run.evaluation, Evaluation):
                within = f"/{run.own_folder.parent.name}/{run.own_folder.name}/"
                paths = (side.path for side in run.evaluation.inputs.both)
                found.update(path.partition(within)[0] for path in paths if within in path)
        return sorted((one for one in found if one.count("/") > 1), key=len, reverse=True)

    @cached_property
    def sources(self) -> Sequence[Source]:
        """What is published, the files of measurements included, by path."""
        found = []
        paths = [self.folder / name for name in TOP if (self.folder / name).is_file()]
        for part in PARTS:
            below = files_below(self.folder / part)
            paths += [path for path in below if self.imported.isdisjoint(path.parents)]
        for path in paths:
            source = Source(path, path.relative_to(self.folder).as_posix())
            reason = self._reason(source)
            if reason is None:
                found.append(source)
            elif reason:
                self.left_out[source.name] = reason
        return sorted(found, key=lambda source: source.name)

    def _reason(self, source: Source) -> str | None:
        """Why a file is left out, None where it is not; empty where nobody misses it."""
        if any(part.startswith(".") for part in PurePosixPath(source.name).parts):
            return ""
        if source.raw or source.path.suffix in (".json", ".yaml", ".parquet", *TEXTS):
            return None
        if source.path.suffix in DRAWN:
            return "figures are drawn anew of what was published"
        return "tailtap does not know what is in it"

    @property
    def captures(self) -> Iterator[Source]:
        """The files of measurements."""
        return (source for source in self.sources if source.raw)

    def teach(self, redactor: Redactor) -> None:
        """Let a redactor see whatever is published."""
        for source in self.sources:
            if source.raw or source.path.suffix == ".parquet":
                continue
            with _named(source, self.left_out):
                redactor.learn(self._content(source))
        testbed = self.folder / "testbed.yaml"
        if testbed.is_file():
            _learn_testbed(load(testbed, TESTBED).data, redactor)

    def addresses(self) -> set[str]:
        """The addresses that the experiment file, and the plan made of it, give to packets."""
        found: set[str] = set()
        for name in ("experiment.yaml", "plan.json"):
            path = self.folder / name
            if path.is_file():
                content = load(path).data if path.suffix == ".yaml" else read_json(path)
                found |= set(packet_addresses(content))
        return found

    def _content(self, source: Source) -> Any:
        """The JSON value of a file, or its text."""
        text = self._bytes(source).decode("utf-8", "replace")
        return parse_json(text) if source.path.suffix == ".json" else text

    def _bytes(self, source: Source) -> bytes:
        try:
            return read_bytes(source.path, self.folder.resolve(), RECORD_BYTES)
        except OSError as error:
            raise ValueError(str(error)) from error

    def write(self, site: Path, redactor: Redactor) -> None:
        """Write all but measurements into the folder of the site."""
        for source in self.sources:
            if source.raw or source.name in self.left_out:
                continue
            with _named(source, self.left_out):
                content = self._redacted(source, redactor)
                target = site / published_name(source, redactor)
                make_folder(target.parent, below=site)
                with drafted(target, below=site) as file:
                    file.write(content)

    def _redacted(self, source: Source, redactor: Redactor) -> bytes:
        match source.path.suffix:
            case ".json":
                value = redactor.json(self._content(source))
                return f"{json.dumps(value, indent=2)}\n".encode()
            case ".parquet":
                return _table(source.path, self.folder.resolve(), redactor)
            case _ if source.name == "testbed.yaml":
                data = without_access(load(source.path, TESTBED).data)
                return yaml.safe_dump(redactor.json(data), sort_keys=False).encode()
            case _:
                return redactor.text(self._content(source)).encode()


@contextmanager
def _named(source: Source, left_out: dict[str, str]) -> Iterator[None]:
    """A file that is none of ours, or damaged, is left out and said to be."""
    try:
        yield
    except ValueError as error:
        left_out[source.name] = f"{UNREADABLE}: {str(error).splitlines()[0]}"


def published_name(source: Source, redactor: Redactor) -> str:
    """The path of a file in the site: its names, too, may identify."""
    return "/".join(redactor.text(part) for part in PurePosixPath(source.name).parts)


def _table(path: Path, root: Path, redactor: Redactor) -> bytes:
    """A table as it was where nothing in it identifies. Raises `ValueError`."""
    try:
        before = read_any(path, root)
        after = redactor.table(before)
        if after is before:
            with open_file(path, root) as content:
                return content.read()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error
    file = io.BytesIO()
    pq.write_table(after, file, compression="zstd")
    return file.getvalue()


def _learn_testbed(data: Mapping[str, Any], redactor: Redactor) -> None:
    """What a testbed file says of machines, and of who logs in to them."""
    hosts = data.get("hosts")
    for name, host in hosts.items() if isinstance(hosts, Mapping) else ():
        redactor.learn({"hostname": str(name)})
        if not isinstance(host, Mapping):
            continue
        user, at, address = str(host.get("ssh") or "").rpartition("@")
        redactor.learn({"username": user if at else "", "hostname": address})
        power = host.get("power")
        if isinstance(power, Mapping):
            redactor.learn(
                {
                    "username": str(power.get("user") or ""),
                    "hostname": str(power.get("address") or ""),
                }
            )


def without_access(data: Mapping[str, Any]) -> dict[str, Any]:
    """A testbed file without how its machines are logged in to, switched, and looked at."""
    hosts = data.get("hosts")
    kept = hosts if isinstance(hosts, Mapping) else {}
    bare = {
        name: {key: value for key, value in (host or {}).items() if key in ("boot", "python")}
        for name, host in kept.items()
    }
    rest = {key: value for key, value in data.items() if key not in ("hosts", "ssh_config")}
    return {"hosts": bare, **rest}
