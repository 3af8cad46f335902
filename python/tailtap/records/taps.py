"""What taps counted, while they stamp and at their end, as ``tailtap tap --json`` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailtap.records.record import Count, InnerFile, Number, Open, Record, Texts, Width, parsed


class Tap(Record, kw_only=True):
    """What the record of a run has of any tap, also of one of others, or of an imported run."""

    seen: Count | None = None
    stored: Count | None = None
    lost: Count | None = None
    other: Count | None = None
    dropped: Count | None = None
    clock: str | None = None

    @property
    def came(self) -> int | None:
        """All packets, those of the warm-up and others without an id included."""
        return None if self.seen is None else self.seen + (self.other or 0)


class Tapped(Record, kw_only=True):
    """What any tap tells at its end; its file is in the run folder."""

    file: InnerFile
    seen: Count
    lost: Count
    dropped: Count | None = None
    late: Count | None = None
    warnings: Texts = []


TapsOfFlows = Mapping[str, Mapping[str, Open[Tapped]]]
"""By the folder of the flow and the tap's name."""


class Counts(Record, kw_only=True, omit_defaults=True):
    """Packets of a link."""

    seen: Count
    stored: Count
    lost: Count
    other: Count
    """Without an id, or a key."""
    filtered: Count | None = None
    unsampled: Count | None = None
    late: Count | None = None
    """Stamped on receipt, as the kernel did not say when they reached the interface."""


class LinkSoFar(Counts, kw_only=True):
    """A link while it is tapped."""

    sample: Width
    """One packet in so many is stamped now."""
    rate: Number
    """Packets per second, of late."""
    ns: Number | None
    """What the tap's program takes for a packet."""
    share: Number
    """Of one core's time."""


class TapsSoFar(Record, kw_only=True):
    """All links while they are tapped."""

    time_ns: Count
    links: dict[str, LinkSoFar]
    share: Number
    """Of one core's time, for all taps."""
    writer_share: Number | None = None
    """Of one core's time, for who writes the files."""


class TappedLink(Counts, kw_only=True, forbid_unknown_fields=True):
    """A link at the end of its tap."""

    file: str
    files: Texts
    interface: str
    namespace: str | None
    """None: the current one."""
    clock: str
    warnings: Texts
    format: str | None = None
    hook: str | None = None
    """What of the kernel the program was attached to."""
    hash: str | None = None
    """What the hashes of marks are of."""
    samples: list[tuple[Count, Width]] | None = None
    """From when on one packet in how many was stamped."""
    dropped: Count | None = None
    """By the kernel, before their stamp."""
    outside: str | None = None
    """Where packets are stamped, and what of their way lies outside."""
    unstamped: Count | None = None
    """That the card had no stamp for."""
    clock_device: str | None = None
    cost_ns: Number | None = None
    cost_floor_ns: Number | None = None
    cost_clock_ns: Number | None = None


def of_core(links: Mapping[str, Mapping[str, Any]]) -> dict[str, TappedLink]:
    """What the taps of `_core` tell of each link; stamps of cards are one file."""
    return {
        name: parsed(
            f"the tap {name}",
            {
                "namespace": None,
                **link,
                "file": str(link["file"]),
                "files": [str(path) for path in link.get("files", [link["file"]])],
            },
            TappedLink,
        )
        for name, link in links.items()
    }
