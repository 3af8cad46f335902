"""docs/explanation/papers/README.md: each experiment file of the papers, and what it gave here.

Usage: python -m benches.papers [FOLDER…], with the folders of finished experiments of
examples/papers, whose figures are then stored in measured.json and stand on the page. Without
folders, the page is made of what is stored. It is made of the experiment files themselves, of
papers.yaml (what each figure of the documents shows and was measured with, and the numbers that
they print), and of measured.json. How the plan of a file differs from what its papers had is
written into the file, before the differences that somebody else wrote there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import msgspec

from tailtap.analysis.claims.judge import claims_shown
from tailtap.analysis.figures.arranging import follows
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.runs.groups import configuration_label, configurations
from tailtap.analysis.runs.reader import load_experiment, load_search, planned_runs
from tailtap.analysis.runs.run import Experiment as Runs
from tailtap.analysis.runs.run import Run
from tailtap.base.units import (
    format_count,
    format_rate,
    format_share,
    format_size,
    format_time,
    parse_cpus,
)
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import make_plan
from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.lab.platforms.contained import ContainedOptions
from tailtap.lab.platforms.vm import VmOptions
from tailtap.measure.boots import boots_of
from tailtap.measure.preconditions import stamp_bytes
from tailtap.records.run import CASE
from tailtap.show.sections.answers import rates_table

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples/papers"
PAGES = ROOT / "docs/explanation/papers"
PAPER = "scale=paper"
SHOWN = (0.5, 0.99, 0.999, 1.0)
"""The percentiles in the tables of this machine's output."""
COMMON = 3
"""What differs in the same words in so many files is said once."""
HEAD = f"""# The papers, figure by figure

For readers of the papers who want to ask this of their own machine. Made from [the experiment
files](../../../examples/papers) by `make docs-papers`; a test fails when it is stale.

Each file runs small as it ships, and at the paper's scale with `--set {PAPER}`; `--check` says
what the machine lacks for that:

```sh
tailtap run examples/papers/as-installed.yaml --check --set {PAPER}
sudo tailtap run examples/papers/as-installed.yaml --out as-installed
sudo tailtap report as-installed
```

With `--testbed lab.yaml` the check asks each host, and says how long packets are sent, how often
the device's host is booted, and how much disk the stamps need.

`report` draws each figure under the names of its paper and its number, with a word more where there
are several: `how-low-8-interrupts`, `virtualized-tables-4-5`.

The tables of latencies have the worst valid repeat of each configuration on a virtual machine which
others used at the same time. They show what the output looks like, and no more.

| name | paper | measured on |
|---|---|---|
"""
DRAWINGS = "drawings"
STATES = {
    "real": "it runs in a test",
    "published files": "files that others published are read",
    "guests": "it was tried on virtual machines",
    "emulated": "it was tried on emulated cards or processors",
    "links": "it was tried with links in the place of fibres",
    "stand-in": "a program with the same command line and files was in its place",
    "not tried": "an example is written from its documentation",
}
SENT = (
    "tailtap sends the packets, by AF_XDP; the paper's generator was MoonGen, which "
    "examples/external/moongen-cards.yaml runs."
)
STAMPED = (
    "Stamps are of software; the paper's were of cards, as are those of a testbed with splitters "
    "by --set tap.clock=hardware."
)
YOURS = "Cards, CPUs and versions are yours; the paper had "
"""Begins the sentence on the machines of a paper, which the page has once."""
UNSAID = "The paper does not say"
_NAME = re.compile(r"([a-z-]+?)-(tables?-|section-)?(\d+(?:-\d+)*)(?:-[a-z]+)*")


Had = dict[str, list[str | int] | None]
"""What a paper's runs had, by the names of `FACTS`; None where it does not say it."""


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A paper."""

    title: str
    by: str
    had: Had


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    """A figure or a table of a paper, and the numbers that its text tells."""

    shows: str
    had: Had = {}
    """Where it is not what the whole paper's runs had."""
    published: list[str] = []
    data: str = ""
    """The repository that has its measurements; `DRAWINGS` where only drawings are published."""
    apart: str = ""
    """Why these do not stand beside ours."""


class System(msgspec.Struct, forbid_unknown_fields=True):
    """A program, a device or a method of the papers' set-up."""

    name: str
    papers: list[str]
    here: str
    """What stands for it, or runs or reads it."""
    state: str
    """One of `STATES`."""
    tried: str
    """The test that tries it or, where none does, the example that runs it."""
    proof: str
    """What the owner of a testbed types."""
    shows: str
    """What is to be seen then."""


class Papers(msgspec.Struct, forbid_unknown_fields=True):
    """``papers.yaml``."""

    documents: dict[str, Document]
    figures: dict[str, Shown]
    systems: list[System]
    remarks: dict[str, list[str]]
    """By the name of an experiment: what can be concluded, and what cannot."""


class Row(msgspec.Struct):
    """A configuration as it was measured: its worst valid repeat."""

    configuration: str
    runs: int
    invalid: int
    latency_ns: list[int | None]
    """At `SHOWN`; None where a run has too few packets for it."""
    loss: float | None


class Answered(msgspec.Struct):
    """What a claim of the file came to."""

    says: str
    answer: str


class Measured(msgspec.Struct):
    """A small run of an experiment."""

    machine: str
    date: str
    seconds: float
    failed: int
    rows: list[Row]
    claims: list[Answered]
    rates: list[list[str]] = []
    """Of a search: the heads of a table, and its rows."""


@dataclass(frozen=True)
class PaperFile:
    """An experiment file, as it ships and at the papers' scale."""

    path: Path
    small: CheckedExperiment
    whole: CheckedExperiment

    @property
    def name(self) -> str:
        """What file and page are called."""
        return self.path.stem

    @property
    def figures(self) -> Sequence[Figure]:
        """What it draws at the papers' scale."""
        return _first(self.whole).figures


def read_files() -> list[PaperFile]:
    """All experiment files of the papers."""
    return [
        PaperFile(path, read_experiment(path), read_experiment(path, [PAPER]))
        for path in sorted(FILES.glob("*.yaml"))
    ]


def read_papers() -> Papers:
    """What the papers show."""
    return msgspec.yaml.decode((PAGES / "papers.yaml").read_bytes(), type=Papers)


def counterparts(figure: Figure) -> list[str]:
    """Which figures of the papers one is the counterpart of: its name says so.

    ``how-low-7-9`` is that of how-low-7 and how-low-9, ``virtualized-tables-4-5`` that of two
    tables; words behind the numbers tell several of one figure apart.
    """
    found = _NAME.fullmatch(figure.name or "")
    if found is None:
        return []
    document, kind, numbers = found.groups(default="")
    kind = kind.replace("tables", "table")
    return [f"{document}-{kind}{number}" for number in numbers.split("-")]


def take(folder: Path) -> tuple[str, Measured]:
    """The name and the figures of a finished experiment."""
    rates: list[list[str]] = []
    if (folder / "search.json").is_file():
        experiment, search = load_search(folder)  # the latencies at the rates that it found
        varied = list(search.answers[0].variables)
        table = rates_table(search.answers)
        shown = table.columns[: len(varied) + 3]  # what varies, the loss, and the rate's bounds
        rates = [[*varied, *(column.heading for column in shown[len(varied) :])]]
        rates += [
            [cell.page(column.kind) for cell, column in zip(row.cells, shown, strict=False)]
            for row in table.rows
        ]
    else:
        experiment = load_experiment(folder)
    groups = [group for group in configurations(experiment) if group.origin is None]
    first = experiment.finished[0]
    cpus = len(parse_cpus(first.environment.cpu.online or ""))
    rows = []
    named = [name for name in first.variables if name != CASE and _named(name, experiment)]
    for group in groups:
        worst = group.worst or group.members[0]
        rows.append(
            Row(
                configuration_label(worst.run, experiment.name, tuple(named)),
                len(group.members),
                len(group.members) - len(group.leading),
                [_at(worst.run, p) for p in SHOWN],
                worst.run.loss,
            )
        )
    measured = Measured(
        f"{cpus} CPUs, Linux {first.environment.kernel.release}",
        first.started[:10],
        first.evaluation.duration if first.evaluation else 0.0,
        len(experiment.failed) + len(planned_runs(experiment)),
        rows,
        [Answered(row.says, row.answer) for row in claims_shown(experiment)],
        [[cell.replace("\xa0", " ") for cell in row] for row in rates],
    )
    return experiment.name, measured


def _named(variable: str, experiment: Runs) -> bool:
    """Whether the name of a case tells the value of a variable."""
    runs = [run for run in experiment.own if CASE in run.variables]
    return bool(runs) and follows(variable, [CASE], runs)


def _at(run: Run, p: float) -> int | None:
    row = run.percentile(p)
    return row.value if row is not None and (p == 1 or row.supported) else None


def page(files: Sequence[PaperFile], papers: Papers, measured: Mapping[str, Measured]) -> str:
    """The page."""
    times = Counter(sentence for file in files for sentence in _differs(file))
    common = [sentence for sentence, files_with in times.items() if files_with >= COMMON]
    ways = Counter(map(_measured_on, measured.values()))
    usual = max(ways, key=ways.__getitem__)
    lines = [f"{HEAD}{_documents(papers)}", "", f"Unless said otherwise, measured {usual}.", ""]
    lines += [*_systems(papers), *_public(files, papers)]
    lines += ["What is not the same in several files:", ""]
    for sentence in common:
        lines += _text(f"- {sentence}", "  ")
    for file in files:
        own = [sentence for sentence in _differs(file) if sentence not in common]
        lines += _head(file)
        lines += _counterparts(file, papers, own)
        lines += _output(measured.get(file.name), usual)
        lines += _concluded(file, papers, measured.get(file.name))
    return "\n".join(lines) + "\n"


def _documents(papers: Papers) -> str:
    return "\n".join(
        f"| {name} | *{paper.title}* ({paper.by}) | {_listed(paper.had[MACHINES] or [])} |"
        for name, paper in papers.documents.items()
    )


def _kernel(name: str | None, boot: str) -> str:
    return "nohz" if "nohz_full" in boot else name or "the one that was booted"


def _host_kernel(one: Experiment) -> list[str]:
    """Of a guest's machine."""
    own = one.dut.settings
    return [_kernel(own.host_kernel, own.host_boot)] if isinstance(own, VmOptions) else []


def _cgroup(one: Experiment) -> list[str]:
    own = one.dut.settings
    return [str(own.cgroup or "that of the boot")] if isinstance(own, ContainedOptions) else []


def _interrupts(one: Experiment) -> list[str]:
    irq = one.dut.irq
    return [irq if isinstance(irq, str) else format_count(len(irq), "CPU")]


MACHINES, FUNCTIONS = "machines", "virtual functions"
FACTS: Mapping[str, tuple[Callable[[Experiment], Iterable[str]], str]] = {
    "generator": (lambda one: [one.traffic.generator], SENT),
    "stamps": (lambda one: [one.tap.clock], STAMPED),
    "forwarder": (lambda one: [one.dut.forwarder], ""),
    "platform": (lambda one: [one.dut.platform], ""),
    "kernel": (lambda one: [_kernel(one.dut.given("kernel"), one.dut.given("boot") or "")], ""),
    "kernel of the guest's host": (_host_kernel, ""),
    "version of control groups": (_cgroup, ""),
    "number of CPUs": (lambda one: [str(len(one.dut.cpus))], ""),
    "kind of the outer ports": (lambda one: [FUNCTIONS if one.dut.functions else "cards"], ""),
    "placement of interrupts": (_interrupts, ""),
    "frame size": (lambda one: [f"{size} B" for size in one.traffic.sizes], ""),
    "packet rate": (lambda one: [format_rate(one.traffic.rate)], ""),
    "duration": (lambda one: [format_time(one.traffic.duration)], ""),
    "load pattern": (lambda one: [one.traffic.pattern.kind], ""),
    "number of flows": (lambda one: [str(one.traffic.flows)], ""),
    "number of repeats": (lambda one: [str(one.repeat)], ""),
    MACHINES: (lambda one: ["yours"], f"{YOURS}{{theirs}}."),
}
"""What a plan is compared in: what an experiment of it has, and the sentence where a paper had
something else; a sentence of the usual form where there is none.
"""


MANY = 6
"""So many values are listed; of more, the first and the last are said."""


def _listed(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    if len(most) >= MANY:
        return f"one of {len(most) + 1} values from {most[0]} to {last}"
    return f"{', '.join(most)} and {last}" if most else last


def found_differences(file: PaperFile, papers: Papers) -> list[str]:
    """How the plan at the paper's scale differs from what its papers had, in sentences."""
    every = [one for _, one in file.whole.combinations]
    drawn = sorted(_drawn(file))
    had = [{**papers.documents[_document(one)].had, **papers.figures[one].had} for one in drawn]
    found, unsaid = [], []
    for name, (read, sentence) in FACTS.items():
        ours = dict.fromkeys(value for one in every for value in read(one))
        known = [one[name] for one in had if name in one]
        theirs = dict.fromkeys(str(value) for values in known for value in values or ())
        more = [one for one in ours if one not in theirs]
        missing = [one for one in theirs if one not in ours]
        if not (known and ours):
            continue
        if not theirs:
            unsaid.append(f"the {name} ({_listed(ours)} here)")
        elif missing and sentence:
            found.append(sentence.format(theirs=_listed(missing)))
        elif missing and more:
            found.append(f"The {name} is {_listed(more)}; the paper's was {_listed(missing)}.")
        elif missing:
            found.append(f"The {name} is never {_listed(missing)}, unlike the paper's.")
        elif more:
            found.append(f"The {name} is {_listed(more)}, too; the paper's was not.")
    return [*found, *([f"{UNSAID} {_listed(unsaid)}."] if unsaid else [])]


_FOUND = re.compile(
    f"{re.escape(SENT)}|{re.escape(STAMPED)}|{YOURS}|({UNSAID} t|T)he ({'|'.join(FACTS)}) (is|\\()"
)
"""How a sentence begins that was found."""
_KEY = "    differs:\n"
"""The last key of each file: the differences at the papers' scale."""


def with_differences(file: PaperFile, papers: Papers) -> str:
    """The text of the file with what was found in the place of what once was."""
    others = [one for one in _first(file.whole).differs if _FOUND.match(one) is None]
    before, key, _ = file.path.read_text("utf-8").rpartition(_KEY)
    lines = [
        line
        for sentence in (*found_differences(file, papers), *others)
        for line in wrap(
            sentence,
            100,
            initial_indent=6 * " " + "- ",
            subsequent_indent=8 * " ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
    return before + key + "\n".join(lines) + "\n"


def _systems(papers: Papers) -> Iterator[str]:
    """What the set-ups of the papers are made of, and how each is proven."""
    yield from (f"## The {len(papers.systems)} systems of the papers' testbeds", "")
    yield from _text("What was tried here, and what the owner of a testbed types to see it there:")
    yield from ("", *(f"- *{state}*: {what}." for state, what in STATES.items()), "")
    yield from ("| system | in | here | state | on your testbed |", "|---|---|---|---|---|")
    for one in papers.systems:
        told = f"{one.proof}: {one.shows}"
        yield (
            f"| {one.name} | {', '.join(one.papers)} | {one.here} | "
            f"[{one.state}](../../../{one.tried}) | {told} |"
        )
    yield ""


def _public(files: Sequence[PaperFile], papers: Papers) -> Iterator[str]:
    """Of how many figures the data are published, and how many of these stand beside ours."""
    beside = _beside(files)
    public = [one for one, row in papers.figures.items() if row.data not in ("", DRAWINGS)]
    drawings = [one for one, row in papers.figures.items() if row.data == DRAWINGS]
    yield from _text(
        f"Of {len(papers.figures)} figures and tables {len(public)} have published data; "
        f"{len(beside)} of these are drawn beside ours (`--figures-from`), and of the others the "
        f"column *data* says why not. Of {len(drawings)} drawings alone are published."
    )
    yield ""


def _drawn(file: PaperFile) -> set[str]:
    """The figures of the papers of which it draws counterparts."""
    return {one for figure in file.figures for one in counterparts(figure)}


def _beside(files: Sequence[PaperFile]) -> set[str]:
    """The figures with published runs beside ours."""
    figures = [one for file in files for one in file.figures if one.beside is not None]
    return {one for figure in figures for one in counterparts(figure)}


def _data(one: str, row: Shown, beside: Collection[str]) -> str:
    if row.data == DRAWINGS:
        return "drawings alone"
    if not row.data:
        return "–"
    return f"{row.data}, {'drawn beside' if one in beside else f'not beside: {row.apart}'}"


def _differs(file: PaperFile) -> list[str]:
    return [sentence for sentence in file.whole.differs if YOURS not in sentence]


def _measured_on(one: Measured) -> str:
    return f"on {one.date}, {one.machine}, {one.seconds:.1f} s a run"


def _head(file: PaperFile) -> Iterator[str]:
    name, first = file.name, _first(file.small)
    sources = set(map(_document, _drawn(file)))
    path = f"examples/papers/{name}.yaml"
    yield from ("", f"## {first.question}", "")
    plan = make_plan(file.whole)
    hours = sum(run.experiment.seconds for run in plan) / 3600
    takes = [f"{hours:.1f} h of traffic", f"{format_size(stamp_bytes(plan))} of stamps"]
    takes += [format_count(boots_of(plan), "boot")]
    yield from _text(
        f"[{name}](../../../{path}), {len(make_plan(file.small))} runs, at the paper's scale "
        f"{len(plan)} ({', '.join(sorted(sources))}), which take {', '.join(takes)}."
    )
    commands = []
    if any(figure.kind == "highest-rate" for figure in first.figures):
        commands.append(f"`tailtap search {path} --loss 0 --latency-at '100%'` measures it")
    if any(figure.made.of == "models" or figure.kind == "models" for figure in first.figures):
        commands.append(f"`tailtap model {name}` comes before the report")
    if any(figure.beside is not None for figure in first.figures):
        commands.append(
            f"`tailtap report {name} --figures-from {path}` draws published runs beside"
        )
    if commands:
        yield ""
        yield from _text(f"{'; '.join(commands)}.")


def _counterparts(file: PaperFile, papers: Papers, differs: Sequence[str]) -> Iterator[str]:
    drawn, beside = _drawn(file), _beside([file])
    yield from ("", "| figure | what it shows | printed | data |", "|---|---|---|---|")
    for one, row in papers.figures.items():
        if one in drawn:
            number = one.removeprefix(f"{_document(one)}-").replace("-", " ")
            printed = "<br>".join(row.published) or "–"
            yield f"| {number} | {row.shows} | {printed} | {_data(one, row, beside)} |"
    yield from ("", "Not the same:", "") if differs else ()
    for sentence in differs:
        yield from _text(f"- {sentence}", "  ")


def _output(measured: Measured | None, usual: str) -> Iterator[str]:
    if measured is None:
        yield from ("", "It was not measured here.")
        return
    if _measured_on(measured) != usual:
        yield from ("", f"Measured {_measured_on(measured)}.")
    columns: dict[str, list[str]] = {
        "runs": [
            str(row.runs) + (f" ({row.invalid} invalid)" if row.invalid else "")
            for row in measured.rows
        ]
    }
    for place, name in enumerate(("p50", "p99", "p99.9", "max")):
        values = [row.latency_ns[place] for row in measured.rows]
        columns[name] = ["–" if value is None else format_time(value) for value in values]
    losses = [row.loss for row in measured.rows]
    columns["lost"] = ["–" if loss is None else format_share(loss) for loss in losses]
    yield from _table({"configuration": [row.configuration for row in measured.rows], **columns})
    if measured.rates:
        heads, *rows = measured.rates
        yield from ("", "The rates that the search found, and the next one that does not hold:")
        yield from _table(dict(zip(heads, map(list, zip(*rows, strict=True)), strict=True)))
    if measured.failed:
        yield ""
        have = "1 run has" if measured.failed == 1 else f"{measured.failed} runs have"
        yield f"{have} no result: the machine was not booted for them, or they were not made."


def _table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Columns by their heads; of those that have one value in all rows, a sentence before it."""
    alike = [name for name, cells in columns.items() if len(set(cells)) == 1]
    varied = {name: cells for name, cells in columns.items() if name not in alike}
    yield ""
    if alike:
        every = ", ".join(f"{name} {columns[name][0]}" for name in alike)
        yield from (f"In each row: {every}.", "")
    yield f"| {' | '.join(varied)} |"
    yield f"|---|{'---:|' * (len(varied) - 1)}"
    for cells in zip(*varied.values(), strict=True):
        yield f"| {' | '.join(cells)} |"


def _concluded(file: PaperFile, papers: Papers, measured: Measured | None) -> Iterator[str]:
    yield from ("", "What can be concluded:", "")
    answers = {row.says: row.answer for row in measured.claims} if measured else {}
    for claim in file.small.claims:
        yield from _text(f"- {claim.says} *{answers.get(claim.says, 'not measured')}*", "  ")
    for sentence in papers.remarks[file.name]:
        yield from _text(f"- {sentence}", "  ")


def _first(checked: CheckedExperiment) -> Experiment:
    return checked.combinations[0][1]


def _document(figure: str) -> str:
    return (
        figure.removesuffix(f"-{figure.rpartition('-')[2]}")
        .removesuffix("-table")
        .removesuffix("-section")
    )


def _text(text: str, indent: str = "") -> list[str]:
    return wrap(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def stored() -> Mapping[str, Measured]:
    """The figures of small runs."""
    path = PAGES / "measured.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])


def main(folders: Sequence[str]) -> None:
    """Store the figures of `folders`, and write the page."""
    measured = {**stored(), **dict(take(Path(folder)) for folder in folders)}
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(measured.items()))), indent=1)
    (PAGES / "measured.json").write_bytes(text + b"\n")
    papers = read_papers()
    for file in read_files():
        file.path.write_text(with_differences(file, papers), "utf-8")
    (PAGES / "README.md").write_text(page(read_files(), papers, measured), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
