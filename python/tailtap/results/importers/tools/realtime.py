"""Histograms of cyclictest (`-h` and `--json`) and of rtla: how late threads and timers were."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from tailtap.base.foreign import parse_json
from tailtap.results.importers.tools.reading import (
    MICROSECOND,
    OPEN,
    Reading,
    bucketed,
    mapping,
    nanoseconds,
    number,
)

_ROW = re.compile(r"^(\d+)((?:[ \t]+\d+)+)[ \t]*$", re.M)
_SUMS = re.compile(
    r"^(?:# )?(?:Histogram )?(min|max|over)(?:flows)?(?: Latencies)?:(.*)$", re.M | re.I
)
_INDEX = re.compile(r"^Index(.*)$", re.M)
_REACH = re.compile(r"(?:-h|-H|--histogram|--histofall)[ =]?(\d+)")


def read_cyclictest(text: str) -> Iterator[Reading]:
    """A reading for each thread. Raises `ValueError`."""
    if not text.startswith("{"):
        yield from _table(text, MICROSECOND, "thread {}", 1)
        return
    found = mapping(parse_json(text))
    asked = _REACH.search(str(found.get("cmdline:") or found.get("cmdline")))
    threads = mapping(found["thread"])
    for name, thread in threads.items():
        counts = mapping(mapping(thread)["histogram"])
        rows = {number(place, "us"): number(count, "cycles") for place, count in counts.items()}
        beyond = number(thread["cycles"], "cycles") - sum(rows.values())
        yield _reading(
            rows,
            1,
            MICROSECOND,
            (max(int(asked[1]) if asked else 0, *(place + 1 for place in rows)), max(beyond, 0)),
            (thread.get("min"), thread.get("max")),
            f"thread {name}" if len(threads) > 1 else "",
        )


def read_rtla(text: str) -> Iterator[Reading]:
    """A reading for each column: a CPU, or what was timed on it. Raises `ValueError`."""
    unit = 1 if "# Time unit is nanoseconds" in text else MICROSECOND
    yield from _table(text, unit, "{}")


def _table(text: str, unit: int, names: str, width: int = 0) -> Iterator[Reading]:
    """Lines of a time and a count for each column, and behind them lines of sums."""
    rows = [(int(place), counts.split()) for place, counts in _ROW.findall(text)]
    if not rows:
        raise ValueError("it has no histogram")
    # Of each name the first counts.
    sums = {name.lower(): values.split() for name, values in reversed(_SUMS.findall(text))}
    if "max" not in sums:
        raise ValueError("its histogram has no end")

    def told(name: str, column: int) -> int | None:
        found = sums.get(name, [])[column : column + 1]
        return int(found[0]) if found and found[0].isdigit() else None

    header = _INDEX.search(text)
    # Behind its threads cyclictest may have a column of all of them, which has no minimum.
    columns = len(sums.get("min", [])) or min(len(counts) for _, counts in rows)
    titles = header[1].split() if header else [str(place) for place in range(columns)]
    places = [place for place, _ in rows]
    width = width or math.gcd(*places) or 1
    for column in range(columns):
        yield _reading(
            {place: number(counts[column], "cycles") for place, counts in rows},
            width,
            unit,
            (max(places) + width, told("over", column) or 0),
            (told("min", column), told("max", column)),
            names.format(titles[column]) if columns > 1 else "",
        )


def _reading(
    rows: Mapping[int, int],
    width: int,
    unit: int,
    beyond: tuple[int, int],
    ends: tuple[object, object],
    name: str,
) -> Reading:
    """What is beyond the last bucket begins at a time, and ends with the maximum."""
    least, most = (None if end is None else nanoseconds(end, unit) for end in ends)
    last = None if most is None else most + unit - 1
    buckets = [(low * unit, (low + width) * unit - 1, count) for low, count in rows.items()]
    low, count = beyond[0] * unit, beyond[1]
    buckets.append((low, OPEN if last is None else max(last, low), count))
    return Reading(bucketed(buckets), minimum=least, maximum=last, name=name)
