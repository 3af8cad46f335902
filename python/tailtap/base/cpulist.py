"""Sets of CPUs as the kernel writes them: lists and masks."""

from __future__ import annotations

from collections.abc import Iterable

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


def mask_value(mask: str) -> int:
    """The set that `cpu_mask` wrote, one bit for each CPU."""
    return int(mask.replace(",", ""), 16)


def mask_cpus(mask: str) -> tuple[int, ...]:
    """The CPUs in such a mask."""
    value = mask_value(mask)
    return tuple(cpu for cpu in range(value.bit_length()) if value >> cpu & 1)
