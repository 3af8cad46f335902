"""docs/explanation/papers/README.md: each experiment file of the papers, and what it gave here.

Usage: python -m benches.papers [FOLDER…], with the folders of finished experiments of
examples/papers, whose figures are then stored in measured.json and stand on the page. Without
folders, the page is made of what is stored. It is made of the experiment files themselves, of
papers.yaml (what each figure of the documents shows, and the numbers that they print), and of
measured.json.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from tailtap.base.units import format_share, format_time, parse_cpus
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import make_plan
from tailtap.experiment.reading import CheckedExperiment, read_experiment
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

Each file below is run small as it ships, and at the paper's scale with `--set {PAPER}`. What the
machine lacks for that is what `--check` says:

```sh
tailtap run examples/papers/as-installed.yaml --check --set {PAPER}
sudo tailtap run examples/papers/as-installed.yaml --out as-installed
sudo tailtap report as-installed
```

Each section has what the paper shows and prints, and under which names `report` draws it at the
paper's scale; what is not the same; and the worst valid repeat of each configuration on the machine
that this page was made on. That was a virtual machine which others used at the same time, with runs
of seconds: the tables show that the experiments run and what their output looks like, and no more.
"""
_NAME = re.compile(r"([a-z-]+?)-(tables?-|section-)?(\d+(?:-\d+)*)(?:-[a-z]+)*")


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A paper."""

    title: str
    by: str


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    """A figure or a table of a paper, and the numbers that its text tells."""

    shows: str
    published: list[str] = []


class Papers(msgspec.Struct, forbid_unknown_fields=True):
    """``papers.yaml``."""

    documents: dict[str, Document]
    figures: dict[str, Shown]
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
    times = Counter(sentence for file in files for sentence in file.whole.differs)
    common = [sentence for sentence, files_with in times.items() if files_with >= COMMON]
    lines = [HEAD, "What is not the same in several files:", ""]
    for sentence in common:
        lines += _text(f"- {sentence}", "  ")
    for file in files:
        own = [sentence for sentence in file.whole.differs if sentence not in common]
        lines += _head(file, papers)
        lines += _counterparts(file, papers, own)
        lines += _output(measured.get(file.name))
        lines += _concluded(file, papers, measured.get(file.name))
    return "\n".join(lines) + "\n"


def _head(file: PaperFile, papers: Papers) -> Iterator[str]:
    name, first = file.name, _first(file.small)
    documents = {_document(one) for figure in file.figures for one in counterparts(figure)}
    of = [papers.documents[one] for one in papers.documents if one in documents]
    sources = "; ".join(f"*{one.title}* ({one.by})" for one in of)
    path = f"examples/papers/{name}.yaml"
    yield from ("", f"## {first.question}", "")
    yield from _text(
        f"[{name}](../../../{path}), {len(make_plan(file.small))} runs, at the paper's scale "
        f"{len(make_plan(file.whole))}. {sources}."
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
    drawn: dict[str, list[str]] = {}
    for figure in file.figures:
        for one in counterparts(figure):
            drawn.setdefault(one, []).append(f"`{figure.name}`")
    yield from ("", "| figure | what it shows | printed numbers | drawn as |", "|---|---|---|---|")
    for one, row in papers.figures.items():
        if one in drawn:
            number = one.removeprefix(f"{_document(one)}-").replace("-", " ")
            numbers = "<br>".join(row.published) or "–"
            yield f"| {number} | {row.shows} | {numbers} | {', '.join(drawn[one])} |"
    yield from ("", "Not the same:", "") if differs else ()
    for sentence in differs:
        yield from _text(f"- {sentence}", "  ")


def _output(measured: Measured | None) -> Iterator[str]:
    if measured is None:
        yield from ("", "It was not measured here.")
        return
    yield ""
    yield f"On {measured.date}, {measured.machine}, {measured.seconds:.1f} s a run:"
    yield ""
    yield "| configuration | runs | p50 | p99 | p99.9 | max | lost |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in measured.rows:
        runs = str(row.runs) + (f" ({row.invalid} invalid)" if row.invalid else "")
        cells = ["–" if value is None else format_time(value) for value in row.latency_ns]
        loss = "–" if row.loss is None else format_share(row.loss)
        yield f"| {row.configuration} | {runs} | {' | '.join(cells)} | {loss} |"
    if measured.rates:
        heads, *rows = measured.rates
        yield from ("", "The rates that the search found, and the next one that does not hold:", "")
        yield f"| {' | '.join(heads)} |"
        yield "|---" * (len(heads) - 2) + "|---:|---:|"
        for cells in rows:
            yield f"| {' | '.join(cells)} |"
    if measured.failed:
        yield ""
        have = "1 run has" if measured.failed == 1 else f"{measured.failed} runs have"
        yield f"{have} no result: the machine was not booted for them, or they were not made."


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
    written = page(read_files(), read_papers(), measured)
    (PAGES / "README.md").write_text(written, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
