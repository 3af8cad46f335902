"""Captures that are sent instead of tailtap's own packets."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from tailtap.base.errors import InputError, NotRead
from tailtap.base.schema import Strict, Written


class Recording(NamedTuple):
    """What a capture holds."""

    packets: int
    with_id: int
    """Packets that have an id when they are sent."""
    period_ns: int
    """The time in ns from its first packet to the first packet of the next round."""
    largest: int
    """Its largest frame in bytes, check sequence included."""

    @property
    def rate(self) -> int:
        """Packets a second on average, at least 1."""
        return max(1, round(self.packets * 1e9 / self.period_ns))


class Replay(Strict):
    """A capture, its pace, and whether tailtap writes ids into its packets."""

    file: str = Field(description="The path of the capture.", examples=["trace.pcap"])
    pace: Literal["own", "rate"] = Field(
        default="own",
        description="own sends the packets in the times of the capture, rate at traffic.rate and "
        "in traffic.pattern.",
        examples=["rate"],
    )
    ids: Literal["stamp", "keep"] = Field(
        default="stamp",
        description="stamp writes an id into each UDP packet, keep sends the packets as they are, "
        "with ids that they have.",
        examples=["keep"],
    )

    def recording(self) -> Recording:
        """Read the file. Raises `InputError` when it cannot be replayed with ids to measure by."""
        path = Path(self.file)
        try:
            status = path.stat()
        except OSError as error:
            raise NotRead(error, f"cannot read {path}") from error
        found = _read(path, self.ids == "stamp", status.st_mtime_ns, status.st_size)
        if not found.with_id:
            raise InputError("no packet has an id that taps read: write ids: stamp").at(path)
        return found


@functools.lru_cache
def _read(path: Path, stamp_ids: bool, *version: int) -> Recording:
    """Captures are large, and every combination of an experiment asks for them."""
    from tailtap import _core

    return Recording(*_core.recording(path, stamp_ids))


def _from_text(value: object) -> Any:
    return {"file": value} if isinstance(value, str) else value


ReplaySpec = Annotated[
    Replay, BeforeValidator(_from_text), Written("path, or mapping", or_schema={"type": "string"})
]
"""In an experiment file: a path, or a mapping."""
