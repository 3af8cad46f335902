"""What a machine is like during runs, what was set for them, and how runs differ in that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Run
from tailtap.records.machine import Judged, Tuning
from tailtap.show.report.tables import DASH, Cell

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
    def label(self) -> str:
        """What tells them from others, shortened."""
        return _few(self.names)

    @property
    def names(self) -> list[str]:
        """Their configurations, or what of these says how they were tuned."""
        return list(dict.fromkeys(label for label, _ in self.rows))


@dataclass(frozen=True)
class Knob:
    """A row of a table: a knob, its value, what it should be, why, and who says so."""

    name: str
    value: Cell
    wanted: str
    runs: Cell
    """Which of the rows above it is true of; empty where that is all."""
    why: str
    source: str


@dataclass(frozen=True)
class Section:
    """Knobs that have something in common."""

    title: str
    head: str
    """That of the values."""
    knobs: tuple[Knob, ...]
    open: bool
    """Whether it is shown at once."""


@dataclass(frozen=True)
class Matrix:
    """States over the knobs in which they differ."""

    knobs: tuple[str, ...]
    rows: tuple[tuple[str, str, int, tuple[Cell, ...]], ...]
    """The number, label and number of runs of each state, and its cells."""


@dataclass(frozen=True)
class MachineAudit:
    """The audit of one machine over all runs."""

    title: str
    summary: str
    matrix: Matrix | None
    """None where all runs stand alike to all knobs."""
    sections: tuple[Section, ...]


def audits_of(groups: Sequence[Configuration]) -> list[MachineAudit]:
    """The audit of each of `TITLES`; none of runs that stored none."""
    found: list[MachineAudit] = []
    for whose in TITLES:
        states = _states(groups, whose)
        if states:
            found.append(_machine(whose, states))
    return found


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
            state.rows.append((_label(group, groups), told))
    return list(found.values())


def _label(group: Configuration, groups: Sequence[Configuration]) -> str:
    tuning = group.variables.get(TUNING)
    return group.label if tuning is None else tuning


def _marks(told: Tuning) -> Iterator[tuple[str, str]]:
    for name, row in told.audit.items():
        if row.answer == "not-applicable":
            continue
        yield name, SET if name in told.before and row.answer != NOT_MET else row.answer


def _machine(whose: str, states: list[State]) -> MachineAudit:
    names = list(dict.fromkeys(name for state in states for name in state.marks))
    differing = [name for name in names if len({s.marks.get(name) for s in states}) > 1]
    purposes = list(dict.fromkeys(f"{state.role} on CPU {state.cpus}" for state in states))
    runs = sum(len(state.rows) for state in states)
    summary = f"Judged for {', '.join(purposes)}; {runs} run{'' if runs == 1 else 's'}."
    matrix = None
    if differing:
        matrix = Matrix(
            tuple(differing),
            tuple(
                (str(number), state.label, len(state.rows),
                 tuple(_mark_cell(state, name) for name in differing))
                for number, state in enumerate(states, 1)
            ),
        )  # fmt: skip
    return MachineAudit(TITLES[whose], summary, matrix, tuple(_sections(states, names)))


def _mark_cell(state: State, name: str) -> Cell:
    mark = state.marks.get(name)
    if mark is None:
        return Cell("", "", "it does not apply")
    row = _row(state, name)
    wanted = (row and row.wanted) or DASH
    return Cell(
        MARKS[mark], f"mark {mark}", f"{WORDS[mark]}: {_value(state, name)}, wanted {wanted}"
    )


def _sections(states: list[State], names: list[str]) -> Iterator[Section]:
    """Each knob is in one: set for some run, else not as it should be in some, and so on."""
    left: dict[str, str] = {}
    for state in states:
        for _, told in state.rows:
            left.update(told.left)
    having = {
        mark: [n for n in names if any(state.marks.get(n) == mark for state in states)]
        for mark in MARKS
    }
    done: set[str] = set()
    for mark, title, head, is_open in (
        (SET, "Set for runs, and put back after them", "before → during", True),
        (NOT_MET, "Not as it should be", "value", True),
        (UNKNOWN, "Not known", "value", False),
        (MET, "As it should be, by itself", "value", False),
    ):
        chosen = [name for name in having[mark] if name not in done]
        done |= set(chosen)
        knobs = tuple(_knob(states, name, mark, left.get(name)) for name in chosen)
        if knobs:
            yield Section(title, head, knobs, is_open)
    lost = tuple(
        Knob(name, Cell(DASH), DASH, Cell(""), why, "")
        for name, why in left.items()
        if name not in done
    )
    if lost:
        yield Section("Could not be set", "value", lost, True)


def _knob(states: list[State], name: str, mark: str, left: str | None) -> Knob:
    mine = [state for state in states if state.marks.get(name) == mark]
    values = list(dict.fromkeys(_value(state, name) for state in mine))
    judged = [row for state in mine if (row := _row(state, name))]
    wanted = list(dict.fromkeys(row.wanted or DASH for row in judged))
    rows = Cell("")
    if len(mine) < len(states):
        numbers = [str(number) for number, state in enumerate(states, 1) if state in mine]
        others = [str(number) for number, state in enumerate(states, 1) if state not in mine]
        text = f"all but {', '.join(others)}" if len(others) < len(numbers) else ", ".join(numbers)
        rows = Cell(text, "", "; ".join(n for state in mine for n in state.names))
    why = judged[0].why
    if left:
        why = f"Could not be set: {left}. {why}".strip()
    return Knob(
        name,
        Cell(_few(values), "", "; ".join(values) if len(values) > FEW else ""),
        _few(wanted),
        rows,
        why,
        judged[0].source,
    )


def _row(state: State, name: str) -> Judged | None:
    """What the first of these runs says of a knob."""
    return state.rows[0][1].audit.get(name)


def _value(state: State, name: str) -> str:
    """The values of all runs of a state; of what was set also those before."""
    found = []
    for _, told in state.rows:
        row, before = told.audit.get(name), told.before
        value = (row and row.value) or DASH
        found.append(f"{before[name] or DASH} → {value}" if name in before else value)
    return _few(dict.fromkeys(found))


def _few(texts: Iterable[str]) -> str:
    """The first of some texts, and how many more there are."""
    every = list(texts)
    more = len(every) - FEW
    shown = every[:FEW] if more > 0 else every
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
