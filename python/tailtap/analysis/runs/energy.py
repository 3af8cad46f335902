"""The energy of a run, as its machine told it: power by domain, and of processors and memory."""

from __future__ import annotations

from tailtap.analysis.runs.run import Run


def joules(run: Run) -> dict[str, float]:
    """The energy of each domain (``package-0``, ``package-0/dram``) while packets were sent."""
    return {name: uj / 1e6 for name, uj in run.energy.energy_uj.items()} if run.energy else {}


def watts_by_domain(run: Run) -> dict[str, float]:
    """The mean power of each domain."""
    elapsed = run.energy.elapsed_ns if run.energy else 0
    if not elapsed:
        return {}
    return {name: energy * 1e9 / elapsed for name, energy in joules(run).items()}


def watts(run: Run) -> float | None:
    """The mean power of processors and memory together; None where no counter is theirs.

    Packages, and the memory beside them. ``core`` and ``uncore`` are parts of their package, and
    ``psys`` is the whole platform (Documentation/power/powercap/powercap.rst).
    """
    found = [power for name, power in watts_by_domain(run).items() if _by_itself(name)]
    return sum(found) if found else None


def _by_itself(domain: str) -> bool:
    package, _, part = domain.partition("/")
    return package.startswith("package") and part in ("", "dram")


def platform_watts(run: Run) -> tuple[int | None, int | None] | None:
    """The power of the whole machine before and after, by its management controller."""
    told = run.energy.platform_watts if run.energy else None
    return (told.before, told.after) if told else None
