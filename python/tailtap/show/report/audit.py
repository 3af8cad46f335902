"""What a machine is like during runs, how these were wired, what was set for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_count, format_share, ranges
from tailtap.records.live import Observed
from tailtap.records.machine import Judged, Tuning
from tailtap.records.run import AskedPlacement, Placement, RunRecord
from tailtap.show.sections import COUNT, DASH, Cell, Column, Row, Table, row, table

TUNING = "dut.tuning"
"""The variable by which runs differ in what is set for them."""
DUT, GUEST, GENERATOR = "DuT", "guest", "generator"
TITLES: Mapping[str, str] = {
    DUT: "The DuT's machine",
    GUEST: "The guest, as it was booted",
    GENERATOR: "The generator's machine",
}
"""Of the machines that a run may store an audit of."""
SET, MET, NOT_MET, UNKNOWN = "set", "met", "not-met", "unknown"
MARKS: Mapping[str, str] = {SET: "●", MET: "✓", NOT_MET: "✗", UNKNOWN: "?"}
"""How a run stands to a knob, as a sign: set for it, as it should be by itself, not so."""
WORDS: Mapping[str, str] = {
    SET: "set for the run",
    MET: "as it should be by itself",
    NOT_MET: "not as it should be",
    UNKNOWN: "not known",
}
FEW = 3
"""Values or names of runs that a cell shows; a pointer that rests on it reads all."""


@dataclass
class State:
    """Runs that stand alike to every knob."""

    marks: Mapping[str, str]
    role: str
    cpus: str
    rows: list[tuple[str, Tuning]] = field(default_factory=list)
    """Of each run its configuration and its audit."""

    @property
    def names(self) -> list[str]:
        """Their configurations, or what of these says how they were tuned."""
        return list(dict.fromkeys(label for label, _ in self.rows))


@dataclass(frozen=True)
class MachineAudit:
    """The audit of one machine over all runs."""

    title: str
    summary: str
    matrix: Table
    """States over the knobs in which they differ; empty where all runs stand alike to all."""
    tables: tuple[tuple[Table, bool], ...]
    """Knobs that have something in common, and whether they are shown at once."""


def audits_of(groups: Sequence[Configuration]) -> list[MachineAudit]:
    """The audit of each of `TITLES`; none of runs that stored none."""
    return [_machine(whose, states) for whose in TITLES if (states := _states(groups, whose))]


def tuning_of(run: Run, whose: str) -> Tuning:
    """The audit that a run stored of a machine, and what was set there; empty without one."""
    if run.record is None:
        return Tuning()
    if whose == DUT:
        return run.record.tuning or Tuning()
    if whose == GUEST:
        return run.platform_facts.tuning or Tuning()
    station = run.record.stations.get(whose)
    return (station and station.tuning) or Tuning()


def _states(groups: Sequence[Configuration], whose: str) -> list[State]:
    """Runs by how they stand to the knobs, in the order of their first run."""
    found: dict[object, State] = {}
    for group in groups:
        for member in group.members:
            told = tuning_of(member.run, whose)
            if not told.audit:
                continue
            marks = dict(_marks(told))
            key = (told.role, told.cpus, tuple(sorted(marks.items())))
            state = found.setdefault(key, State(marks, told.role, told.cpus))
            state.rows.append((group.variables.get(TUNING, group.label), told))
    return list(found.values())


def _marks(told: Tuning) -> Iterator[tuple[str, str]]:
    for name, judged in told.audit.items():
        if judged.answer != "not-applicable":
            was_set = name in told.before and judged.answer != NOT_MET
            yield name, SET if was_set else judged.answer


def _machine(whose: str, states: list[State]) -> MachineAudit:
    names = list(dict.fromkeys(name for state in states for name in state.marks))
    differing = [name for name in names if len({s.marks.get(name) for s in states}) > 1]
    purposes = list(dict.fromkeys(f"{state.role} on CPU {state.cpus}" for state in states))
    runs = sum(len(state.rows) for state in states)
    summary = f"Judged for {', '.join(purposes)}; {format_count(runs, 'run')}."
    matrix = table(
        f"{TITLES[whose]}: how runs differ",
        [Column("runs tuned alike"), Column("runs", COUNT), *map(Column, differing)],
        (
            row(f"{number} {_few(state.names)}", len(state.rows),
                *(_mark_cell(state, name) for name in differing))
            for number, state in enumerate(states if differing else (), 1)
        ),
    )  # fmt: skip
    tables = _tables(TITLES[whose], states, names, numbered=bool(differing))
    return MachineAudit(TITLES[whose], summary, matrix, tuple(tables))


def _mark_cell(state: State, name: str) -> Cell:
    mark = state.marks.get(name)
    if mark is None:
        return Cell(" ", "", "it does not apply")
    judged = _judged(state, name)
    wanted = (judged and judged.wanted) or DASH
    return Cell(
        MARKS[mark], f"mark {mark}", f"{WORDS[mark]}: {_value(state, name)}, wanted {wanted}"
    )


def _tables(
    title: str, states: list[State], names: list[str], *, numbered: bool
) -> Iterator[tuple[Table, bool]]:
    """Each knob is in one: set for some run, else not as it should be in some, and so on."""
    left = {
        name: why for state in states for _, told in state.rows for name, why in told.left.items()
    }
    done: set[str] = set()

    def of(head: str, title: str, rows: Sequence[Row]) -> Table:
        runs = "The numbers of the table above"
        columns = (Column("knob"), Column(head), Column("wanted"), Column("in", hint=runs),
                   Column("why"), Column("source"))  # fmt: skip
        return table(title, columns, rows)

    for mark, what, head, is_open in (
        (SET, "Set for runs, and put back after them", "before → during", True),
        (NOT_MET, "Not as it should be", "value", True),
        (UNKNOWN, "Not known", "value", False),
        (MET, "As it should be, by itself", "value", False),
    ):
        chosen = [
            name
            for name in names
            if name not in done and any(one.marks.get(name) == mark for one in states)
        ]
        done |= set(chosen)
        if chosen:
            rows = [_knob(states, name, mark, left.get(name), numbered) for name in chosen]
            yield of(head, what, rows), is_open
    if lost := {name: why for name, why in left.items() if name not in done}:
        rows = [row(name, None, None, "", Cell(why, "why"), "") for name, why in lost.items()]
        yield of("value", "Could not be set", rows), True


def _knob(states: list[State], name: str, mark: str, left: str | None, numbered: bool) -> Row:
    mine = [state for state in states if state.marks.get(name) == mark]
    values = list(dict.fromkeys(_value(state, name) for state in mine))
    judged = [found for state in mine if (found := _judged(state, name))]
    wanted = list(dict.fromkeys(found.wanted or DASH for found in judged))
    numbers = [str(number) for number, state in enumerate(states, 1) if state in mine]
    others = [str(number) for number, state in enumerate(states, 1) if state not in mine]
    where = f"all but {', '.join(others)}" if len(others) < len(numbers) else ", ".join(numbers)
    why = judged[0].why
    if left:
        why = f"Could not be set: {left}. {why}".strip()
    return row(
        name,
        Cell(_few(values), "value", "; ".join(values) if len(values) > FEW else ""),
        Cell(_few(wanted), "value"),
        Cell(where if others else "all" * numbered,
             hint="; ".join(one for state in mine for one in state.names) if others else ""),
        Cell(why, "why"),
        Cell(judged[0].source, "source"),
    )  # fmt: skip


def _judged(state: State, name: str) -> Judged | None:
    """What the first of these runs says of a knob."""
    return state.rows[0][1].audit.get(name)


def _value(state: State, name: str) -> str:
    """The values of all runs of a state; of what was set also those before."""
    found = []
    for _, told in state.rows:
        judged, before = told.audit.get(name), told.before
        value = (judged and judged.value) or DASH
        found.append(f"{before[name] or DASH} → {value}" if name in before else value)
    return _few(dict.fromkeys(found))


def _few(texts: Iterable[str]) -> str:
    """The first of some texts, and how many more there are."""
    every = list(texts)
    more = len(every) - FEW
    shown = every[:FEW] if more > 0 else every
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def topology(run: Run) -> dict[str, Any]:
    """Nodes, links and flows in words; nothing of a bare evaluation."""
    record = run.record
    if record is None:
        return {}
    links, flows = record.links, record.flows
    told: dict[str, str] = {}
    for node in record.nodes:
        cpus = f", CPUs {', '.join(map(str, node.cpus))}" if node.cpus else ""
        told[f"node {node.name}"] = f"{node.task}, {node.kind}{cpus}{_asked(node.placement)}"
    if record.observed is not None:
        told |= _observed(record.observed)
    told |= _placement(record)
    own = [flow for flow in flows if flow.name == run.variables.get("flow")]
    if own:  # what other flows pass belongs to their runs
        flows, passed = own, {port for flow in own for port in flow.path}
        others = [link for link in links if not passed.issuperset(link.ends)]
        links = [link for link in links if link not in others]
        told["links of other flows"] = str(len(others))
    if links:
        told["links"] = ", ".join(" – ".join(link.ends) for link in links)
    for flow in flows:
        told[f"flow {flow.name}"] = " → ".join(
            f"{port} (tap)" if port in flow.stamped else port for port in flow.path
        )
    return {"wiring": told} if told else {}


def _observed(observed: Observed) -> dict[str, str]:
    """Where a device was stamped that was there before, who served, and what observing took."""
    told: dict[str, str] = {}
    for place, point in zip(("before", "behind"), observed.points, strict=False):
        told[f"{place} the device"] = f"{point.target}: {point.kind}, in {point.namespace}"
        told[f"stamped {place} the device"] = point.stamped
    for number, server in enumerate(observed.servers, 1):
        names = ", ".join(f"{name} ({pid})" for pid, name in server.threads.items())
        share = "" if server.share is None else f", {format_share(server.share)} of the packets"
        where = f"CPUs {ranges(server.cpus)}"
        told[f"server {number}"] = f"{server.by} {names} on {where}{share}".replace("  ", " ")
    for name, sentences in (("found", observed.found), ("not known", observed.unknown)):
        if sentences:
            told[name] = "; ".join(sentences)
    if (cost := observed.cost) is not None:
        told["observing took"] = (
            f"of the serving cores' time, {format_share(cost.taps)} for the taps and "
            f"{format_share(cost.trace)} for the trace"
        )
    return told


def _asked(asked: AskedPlacement | None) -> str:
    """How the packets of a node were to be received."""
    if asked is None:
        return ""
    irq = asked.irq if isinstance(asked.irq, str) else f"CPUs {', '.join(map(str, asked.irq))}"
    queues = "" if asked.queues is None else f", {asked.queues} queues"
    return f", irq {irq}, by {asked.napi}{queues}"


def _placement(record: RunRecord) -> dict[str, str]:
    """Where the packets of each port were received, and what crossed NUMA nodes."""
    placement = record.placement or Placement()
    told: dict[str, str] = {}
    for name, port in placement.ports.items():
        words = [] if port.card is None else [f"card {port.card}"]
        if port.numa_node is not None:
            words.append(f"NUMA node {port.numa_node}")
        if port.cpus is not None:
            cpus = ", ".join(map(str, port.cpus))
            words.append(
                f"received on CPUs {cpus}" if cpus else "received where the kernel puts it"
            )
        told[f"port {name}"] = ", ".join(words)
    told |= {f"NUMA crossing {n}": sentence for n, sentence in enumerate(placement.crossings, 1)}
    for interrupt, fact in record.card_interrupts.items():
        handled = ", ".join(f"CPU {cpu}: {count}" for cpu, count in fact.handled.items())
        told[f"interrupt {interrupt} of {fact.port}"] = handled or "never came"
    return told
