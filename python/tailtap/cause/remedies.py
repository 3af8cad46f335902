"""Which knobs would remove most of the late packets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tailtap.cause.taxonomy import Named, is_of

IN_GUEST = "guest: "
MOST_KNOBS = 5
LEAST_SHARE = 0.01
"""A knob that removes less than this share of the late packets is not named."""

MADE_FOR: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("kernel-thread", "vmstat", ("stat-interval", "workqueues")),
    ("kernel-thread", "kworker", ("workqueues", "workqueues-default")),
    ("kernel-thread", "khugepaged", ("transparent-huge-pages",)),
    ("kernel-thread", "kcompactd", ("compaction",)),
    ("kernel-thread", "ksmd", ("same-pages",)),
    ("kernel-thread", "rcuo", ("kernel-threads",)),
    ("kernel-thread", "watchdog", ("soft-watchdog",)),
    ("softirq", "RCU", ("rcu-nocbs",)),
    ("function-call-ipi", "rcu", ("rcu-normal",)),
    ("function-call-ipi", "", ()),
)
"""A cause, a word of its detail, and the knobs made for it: others of the same cause do nothing."""

ONLY_FOR: dict[str, tuple[str, ...]] = {
    "emulator-threads": ("qemu", "CPU ", "IO "),
    "maintenance": (
        "apt",
        "dnf",
        "dpkg",
        "e2scrub",
        "fstrim",
        "fwupd",
        "logrotate",
        "mandb",
        "mdcheck",
        "raid-check",
        "sadc",
        "systemd-tmpfile",
        "updatedb",
    ),
}
"""Knobs that remove a cause only where its detail has one of these words: the programs that they
move or stop.
"""


@dataclass(frozen=True)
class Knob:
    """What is to be known of a knob of `tailtap host` here."""

    name: str
    removes: tuple[str, ...]
    risk: int
    settable: str
    recommended: bool = True

    @property
    def _rank(self) -> tuple[bool, int, bool, bool, str]:
        """What is cheaper comes first."""
        nobody, boot = self.settable == "no", self.settable == "boot"
        return (not self.recommended, self.risk, nobody, boot, self.name)


@dataclass(frozen=True)
class Remedy:
    """Knobs that would remove a share of the late packets."""

    knobs: tuple[str, ...]
    packets: int
    share: float


def knobs_for(name: Named, knobs: Sequence[Knob], met: Collection[str] = ()) -> list[Knob]:
    """The knobs that remove a cause, the cheapest first; those that are `met` have done so.

    A guest has its kernel's line and nothing else that could be set for it: knobs of a guest's
    cause are called ``guest: NAME``, in `met` as well.
    """
    if is_of("guest", name):
        knobs = [replace(knob, name=f"{IN_GUEST}{knob.name}") for knob in knobs
                 if knob.settable == "boot"]  # fmt: skip
    made = next(
        (made for cause, word, made in MADE_FOR if cause == name.cause and word in name.detail),
        None,
    )
    found = [
        knob
        for knob in knobs
        if knob.name not in met
        and (
            name.cause in knob.removes if made is None else knob.name.removeprefix(IN_GUEST) in made
        )
        and any(
            word in name.detail for word in ONLY_FOR.get(knob.name.removeprefix(IN_GUEST), ("",))
        )
    ]
    return sorted(found, key=lambda knob: knob._rank)


def remedy(
    packets: Mapping[Named, int], late: int, knobs: Sequence[Knob], met: Collection[str] = ()
) -> Remedy | None:
    """The knobs that a greedy rule names for causes with so many of the `late` packets each."""
    left = dict(packets)
    by_knob: dict[Knob, set[Named]] = {}
    for name in left:
        for knob in knobs_for(name, knobs, met):
            by_knob.setdefault(knob, set()).add(name)
    chosen: list[str] = []
    removed = 0

    def gain(knob: Knob) -> int:
        return sum(left.get(name, 0) for name in by_knob[knob])

    while by_knob and len(chosen) < MOST_KNOBS:
        best = min(by_knob, key=lambda knob: (-gain(knob), knob._rank))
        if gain(best) < max(1, LEAST_SHARE * late):
            break
        removed += gain(best)
        chosen.append(best.name)
        for name in by_knob.pop(best):
            left.pop(name, None)
    return Remedy(tuple(chosen), removed, removed / late) if chosen else None
