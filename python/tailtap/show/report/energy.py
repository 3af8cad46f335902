"""The table of energy: what a run's latency costs in watts."""

from __future__ import annotations

from tailtap.analysis.runs.energy import joules, platform_watts, watts, watts_by_domain
from tailtap.analysis.runs.groups import Configuration, listed
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import time_text
from tailtap.show.report.tables import DASH, Cell, Row, Table

PERCENTILES = ((0.5, "p50"), (0.999, "p99.9"))


def energy(groups: list[Configuration]) -> Table:
    """The runs whose machine told of its energy."""
    return Table(energy_heads(groups), energy_rows(groups))


def energy_heads(groups: list[Configuration]) -> list[str]:
    """Latencies, then power: of processors and memory, by domain, and of the machine by IPMI."""
    heads = [*(name for _, name in PERCENTILES), "max", "power", *_domains(groups)]
    return [*heads, "energy", *(["machine (IPMI)"] if _has_platform(groups) else [])]


def energy_rows(groups: list[Configuration]) -> list[Row]:
    """Every run whose machine told of its energy, under `energy_heads`."""
    rows = []
    for group in groups:
        for member in group.members:
            run, evaluation = member.run, member.evaluation
            if not run.energy:
                continue
            cells = []
            for p, _ in PERCENTILES:
                row = listed(evaluation, p)
                shown = row is not None and row.supported
                cells.append(Cell(time_text(row.value) if row and shown else DASH))
            slowest = evaluation.maximum
            cells.append(Cell(DASH if slowest is None else time_text(slowest), "max"))
            power, total = watts_by_domain(run), watts(run)
            cells.append(_watts(total))
            cells += [_watts(power.get(domain)) for domain in _domains(groups)]
            cells.append(_joules(total, run))
            if _has_platform(groups):
                cells.append(Cell(_platform(run)))
            rows.append(Row(member.label, group.light, group.dark, "", tuple(cells)))
    return rows


def _joules(power: float | None, run: Run) -> Cell:
    if power is None or run.energy is None:
        return Cell(DASH)
    return Cell(f"{power * run.energy.elapsed_ns / 1e9:,.1f}\u00a0J")


def _domains(groups: list[Configuration]) -> list[str]:
    names = (name for g in groups for member in g.members for name in joules(member.run))
    return list(dict.fromkeys(names))


def _has_platform(groups: list[Configuration]) -> bool:
    return any(platform_watts(member.run) for group in groups for member in group.members)


def _watts(power: float | None) -> Cell:
    return Cell(DASH if power is None else f"{power:,.1f}\u00a0W")


def _platform(run: Run) -> str:
    told = platform_watts(run)
    if told is None:
        return DASH
    before, after = (DASH if value is None else f"{value}\u00a0W" for value in told)
    return f"{before} before, {after} after"
