"""Where the interrupts of the DuT's network cards were handled.

What was written to an interrupt's affinity says little: IO-APICs move it only when it comes the
next time, the kernel places some itself, and a daemon may move them back. Where it goes is in
`effective_affinity_list` (Documentation/core-api/irq/irq-affinity.rst), and /proc/interrupts counts
where it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.base.units import ranges
from tailtap.host.changes.resource import read_text
from tailtap.lab.instruments.observing import Quiet, Reading, Scope, Warning
from tailtap.records import run as records
from tailtap.records.run import Facts

PROC = Path("/proc")

Counts = Mapping[str, Mapping[int, int]]
"""How often each CPU handled an interrupt, by its number."""


class CardInterrupts:
    """What each CPU handled of each interrupt, and where these go."""

    def start(self, scope: Scope) -> Handled | None:
        """Read the counters; None where no card of the DuT has interrupts."""
        return Handled(scope.interrupts, PROC) if scope.interrupts else None


class Handled(Quiet):
    """The interrupts from a moment on."""

    def __init__(self, sent: Mapping[str, tuple[str, Sequence[int]]], proc: Path) -> None:
        """By number, the port and the CPUs that each was sent to; none: left to the kernel."""
        self._sent, self._proc = sent, proc
        self._before = counted(_interrupts(proc))

    def stop(self) -> Reading:
        """What was handled meanwhile, and a warning for what was handled elsewhere."""
        after = counted(_interrupts(self._proc))
        facts: dict[str, records.Handled] = {}
        for number, (port, cpus) in self._sent.items():
            before, folder = self._before.get(number, {}), self._proc / "irq" / number
            handled = {
                cpu: count - before.get(cpu, 0)
                for cpu, count in after.get(number, {}).items()
                if count > before.get(cpu, 0)
            }
            facts[number] = records.Handled(
                port=port,
                cpus=list(cpus),
                affinity=read_text(folder / "smp_affinity_list"),
                effective=read_text(folder / "effective_affinity_list"),
                handled={str(cpu): count for cpu, count in handled.items()},
            )
        return Reading(Facts(card_interrupts=facts), tuple(elsewhere(facts)))


def elsewhere(facts: Mapping[str, records.Handled]) -> Iterator[Warning]:
    """A warning for each interrupt that came to a CPU that it was not sent to."""
    for number, fact in facts.items():
        others = {int(cpu): count for cpu, count in fact.handled.items()
                  if fact.cpus and int(cpu) not in fact.cpus}  # fmt: skip
        if others:
            yield {
                "code": "interrupts-elsewhere",
                "message": f"CPU {ranges(others)} handled {sum(others.values())} interrupts "
                f"{number} of {fact.port}, which was sent to {ranges(fact.cpus)} and goes to "
                f"{fact.effective or fact.affinity}",
            }


def counted(text: str) -> Counts:
    """The counters in ``/proc/interrupts``: a column for each CPU that is on."""
    head, *lines = text.splitlines() or [""]
    cpus = [int(name.removeprefix("CPU")) for name in head.split()]
    found: dict[str, dict[int, int]] = {}
    for line in lines:
        number, _, rest = line.partition(":")
        if number.strip().isdecimal():
            counts = rest.split()[: len(cpus)]
            found[number.strip()] = dict(zip(cpus, map(int, counts), strict=False))
    return found


def _interrupts(proc: Path) -> str:
    return (proc / "interrupts").read_text(encoding="ascii", errors="replace")
