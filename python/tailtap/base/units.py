"""Quantities as people write them in experiment files and options: rates, sizes, times.

All results are integers in base units: packets per second, bytes, nanoseconds. Arithmetic is
exact (`fractions.Fraction`); a quantity that is not a whole number of base units is rounded to
the nearest one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from tailtap.base.errors import QuantityError, shown

# As many digits as anybody means; numbers of millions of digits take hours to read.
_NUMBER = re.compile(r"^\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)(?:e([0-9]{1,12}))?\s*([A-Za-zµμ/]*)\s*$")
_MOST_ZEROS = 30
"""The largest exponent. A number of a million zeros takes long to make."""
_MOST = 9 * 10**18
"""Base units: what is computed and stored has room for so many."""

RATE_UNITS: Mapping[str, int] = {"pkt/s": 1, "kpkt/s": 1_000, "Mpkt/s": 1_000_000}
SIZE_UNITS: Mapping[str, int] = {
    "B": 1,
    "kB": 1_000,
    "KiB": 1_024,
    "MB": 1_000_000,
    "MiB": 1_048_576,
    "GB": 1_000_000_000,
    "GiB": 1_073_741_824,
}
TIME_UNITS: Mapping[str, int] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
LENGTH_UNITS: Mapping[str, int] = {"mm": 1, "cm": 10, "m": 1_000, "km": 1_000_000}
FRAMING = 20
"""Bytes that a frame takes of a link besides: preamble, start delimiter and gap."""


_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("pps", "p/s", "pkts/s", "pkt", "packets/s"), "pkt/s"),
    **dict.fromkeys(("kpps", "kp/s", "kpkts/s", "kpkt", "kpkt/s", "k"), "kpkt/s"),
    **dict.fromkeys(("mpps", "mp/s", "mpkts/s", "mpkt", "mpkt/s", "m"), "Mpkt/s"),
    **dict.fromkeys(("b", "byte", "bytes"), "B"),
    **dict.fromkeys(("kb", "kbyte", "kbytes"), "kB"),
    **dict.fromkeys(("mb", "mbyte", "mbytes"), "MB"),
    **dict.fromkeys(("gb", "gbyte", "gbytes", "g"), "GB"),
    **dict.fromkeys(("mib", "mebibyte"), "MiB"),
    **dict.fromkeys(("gib", "gibibyte"), "GiB"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "usecs", "μs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("nsec", "nsecs", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
}
"""What others call these units, in small letters, and what they are called here."""


def _parse(text: object, units: Mapping[str, int], what: str, example: str) -> int:
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None or match[3] not in units:
        raise QuantityError(_no_quantity(text, units, what, example), text)
    value = _exact(match, units[match[3]])
    if value is None:
        base = next(iter(units))
        raise QuantityError(f"{text!r} is too large for a {what}: the most is 9e18 {base}", text)
    return round(value)


def _no_quantity(text: object, units: Mapping[str, int], what: str, example: str) -> str:
    """Why a text is none, and how to write what seems to be meant."""
    known = ", ".join(units)
    number = str(text) if isinstance(text, str | int | float) else ""
    match = _NUMBER.match(number)
    if match is not None and not match[3]:
        unit = next((one for one in ("s", "m") if one in units), next(iter(units)))
        others = ", ".join(other for other in units if other != unit)
        return f"{number} has no unit: write '{number.strip()} {unit}', or take one of {others}"
    unit = "" if match is None else _OTHERS.get(match[3].lower().rstrip("."), "")
    if match is not None and unit in units:
        return f"{text!r} is not a {what}: write '{match[1]} {unit}' (known units: {known})"
    if match is not None and match[3].lower().endswith(("bit/s", "bps")) and units is RATE_UNITS:
        return f"{text!r} is not a {what}, which counts packets, not bits: write {example}"
    return f"{shown(text)} is not a {what}: write a number and one of {known} ({example})"


def _exact(match: re.Match[str], unit: int = 1) -> Fraction | None:
    """The number of a match of `_NUMBER` in base units; None when it is too large."""
    exponent = int(match[2] or 0)
    if exponent > _MOST_ZEROS:
        return None
    value = Fraction(match[1]) * 10**exponent * unit
    return value if value <= _MOST else None


def parse_rate(text: object) -> int:
    """Packets per second of a text such as ``10 kpkt/s``.

    Raises `QuantityError` when the text is no rate or the rate is zero.
    """
    rate = _parse(text, RATE_UNITS, "packet rate", "'10 kpkt/s'")
    if rate == 0:
        raise QuantityError(f"{text!r} is not a packet rate: it must be at least 1 pkt/s", text)
    return rate


def parse_size(text: object) -> int:
    """Bytes of a text such as ``64 B``. Raises `QuantityError` when the text is no size."""
    return _parse(text, SIZE_UNITS, "size", "'64 B'")


def parse_time(text: object) -> int:
    """Nanoseconds of a text such as ``1.5 s``. Raises `QuantityError` when the text is no time."""
    return _parse(text, TIME_UNITS, "time", "'10 s'")


def parse_length(text: object) -> int:
    """Millimetres of a text such as ``2 m``. Raises `QuantityError` when the text is no length."""
    return _parse(text, LENGTH_UNITS, "length", "'2 m'")


def parse_share(text: str) -> float:
    """The ratio that a text such as ``0.5%``, ``0.5 %`` or ``0.005`` means.

    Raises `QuantityError` when the text is none, or not between 0 and 1.
    """
    number = text.strip()
    percent = number.endswith("%")
    match = _NUMBER.match(number.removesuffix("%"))
    if match is None or match[3]:
        raise QuantityError(
            f"{text!r} is not a share: write per cent ('0.5%') or a ratio (0.005)", text
        )
    value = _exact(match)
    share = math.inf if value is None else float(value / (100 if percent else 1))
    if share > 1:
        advice = "100 % is the most" if percent else f"write per cent as '{number}%'"
        raise QuantityError(f"{text!r} is more than everything: {advice}", text)
    return share


def percentile_in(text: str) -> float | None:
    """The share below a percentile such as ``99.9`` or ``p99.9``; None where it is none."""
    number = text.strip().removeprefix("p")
    if not re.fullmatch(r"\d+(\.\d+)?", number) or Decimal(number) > 100:
        return None
    return float(Decimal(number) / 100)


def _format(value: float, steps: list[tuple[str, int]], digits: int) -> str:
    value = round(value)
    for unit, factor in steps:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{value} {steps[-1][0]}"


def format_rate(rate: float) -> str:
    """A packet rate in pkt/s as a short text: ``10 kpkt/s``."""
    return _format(rate, [("Mpkt/s", 1_000_000), ("kpkt/s", 1_000), ("pkt/s", 1)], 3)


def format_size(size: float) -> str:
    """A number of bytes as a short text in powers of 1024: ``256 MiB``."""
    return _format(size, [("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)], 1)


def format_time(ns: float) -> str:
    """A time in nanoseconds as a short text with at most three decimals: ``4.312 us``."""
    return _format(ns, [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)], 3)


def exact_time(ns: int) -> str:
    """A time in the largest unit that it is a multiple of: ``24 h``, ``90 s``."""
    units = [(unit, factor) for unit, factor in TIME_UNITS.items() if unit.isascii()]
    unit, factor = next(one for one in reversed(units) if ns % one[1] == 0)
    return f"{ns // factor} {unit}"


def format_wait(seconds: float) -> str:
    """A time that somebody has to wait, with three digits: ``20 s``, ``2.8 h``."""
    for least, factor, unit in _WAITS:
        if seconds >= least:
            digits = ".3g" if seconds < 1000 * factor else ".0f"
            return f"{seconds / factor:,{digits}} {unit}"
    return f"{seconds:.3g} s"


_WAITS = ((172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "h"), (120.0, 60.0, "min"))


def format_us(ns: float | None) -> str:
    """A time in nanoseconds as microseconds, exact to the nanosecond: ``1,204.312``.

    For columns of latencies, which compare best in one unit; the heading names it. Nothing where
    there is no time.
    """
    if ns is None:
        return ""
    sign, ns = ("-" if ns < 0 else ""), abs(round(ns))
    return f"{sign}{ns // 1_000:,}.{ns % 1_000:03d}"


def exact_rate(rate: int) -> str:
    """A rate as experiment files write it, short where that is exact."""
    short = format_rate(rate)
    return short if parse_rate(short) == rate else f"{rate} pkt/s"


def format_share(share: float, digits: int = 2) -> str:
    """A share as per cent with so many significant digits: ``0.0012 %``, or ``0``.

    Above a half they are the digits of what it lacks to 100 %: ``99.9991 %``.
    """
    if not share:
        return "0"
    part = 1 - share if 0.5 < share < 1 else share
    percent = Decimal(f"{100 * part:.{digits - 1}e}").normalize()
    return f"{percent if part == share else 100 - percent:f} %"


_BLANK = re.compile(r"(?<=\d) (?=%|(?:[num]?s|min|h|[kMG]?pkt/s|[kMG]?i?B|packets?|runs?|UTC)\b)")
"""Between a number and its unit."""


def unbroken(text: str) -> str:
    """A sentence in which no line ends between a number and its unit."""
    return _BLANK.sub("\u00a0", text)


def format_count(count: int, unit: str) -> str:
    """A count and its unit: ``1 packet``, ``1,000 packets``."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


MOST_CPUS = 65_536
"""More than any kernel can be built for: CONFIG_NR_CPUS is 8192 at most."""


def parse_cpus(text: str) -> tuple[int, ...]:
    """CPUs from the kernel's list of them: ``0-1,4`` is 0, 1 and 4.

    Raises `ValueError` for what is no such list, and for CPUs that no kernel has.
    """
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            if int(last or first) >= MOST_CPUS:
                raise ValueError(f"no machine has a CPU {int(last or first)}")
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def list_cpus(cpus: Iterable[int]) -> str:
    """CPUs as the kernel's files take them."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


def ranges(cpus: Iterable[int]) -> str:
    """CPUs as the kernel's files say them: ``0-3,8``."""
    parts: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def cpu_mask(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes a set of them: hexadecimal, groups of 32 bits, commas between."""
    value = sum(1 << cpu for cpu in set(cpus))
    groups: list[str] = []
    while True:
        groups.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(groups))


def mask_cpus(mask: str) -> tuple[int, ...]:
    """The CPUs in such a mask."""
    value = int(mask.replace(",", ""), 16)
    return tuple(cpu for cpu in range(value.bit_length()) if value >> cpu & 1)
