"""`judge_runs`: the library function behind `tailtap verdict`.

Runs that differ in nothing but the repeat answer together: all must hold, and the worst decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.values import NOTHING_UNREAD, Unread
from tailtap.analysis.runs.groups import configuration_label, group
from tailtap.analysis.runs.reader import (
    home_of,
    load_experiment,
    planned_runs,
    required_texts,
    select,
)
from tailtap.analysis.runs.run import NO_TIMES, Experiment, Run
from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import CONFIDENCE, judge, unclaimable
from tailtap.analysis.verdict.requirement import Requirement, parse_requirements
from tailtap.base.errors import InputError
from tailtap.records.verdict import Answer, RunFinding, RunNotice, VerdictRecord, VerdictRow

#: From the best answer to the worst.
ANSWERS: tuple[Answer, ...] = ("holds", "not shown", "violated")


def judge_runs(
    paths: Sequence[Path],
    requirements: Sequence[Requirement] = (),
    *,
    runs: Sequence[str] = (),
    confidence: float = CONFIDENCE,
    undisturbed: bool = False,
    claimed: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> VerdictRecord:
    """Hold requirements against runs.

    Each of `paths` is what `tailtap report` takes: an experiment folder, a run folder or an
    evaluation. Without `requirements`, those of each path's experiment file count. `runs` are
    selections as `results.selection` reads them; without any, runs that were imported beside one's
    own are left out. With `undisturbed`, latencies without pauses from outside are judged; a run
    of which these are not shown shows nothing. Raises `InputError` when nothing is required, unless
    something is `claimed`, when there is no run with a result, or when a run's captures are of two
    clocks that leave more open than is required.
    """
    experiments: dict[Path, Experiment] = {}
    for path in paths:
        home = home_of(path)
        found = load_experiment(path)
        if path.absolute() == home:
            found = replace(found, runs=(*found.runs, *planned_runs(found)))
        if not runs and found.own:
            found = replace(found, runs=found.own)
        found = select(found, runs)
        if undisturbed:
            found = replace(found, runs=tuple(map(undisturbed_run, found.runs)))
        before = experiments.setdefault(home, replace(found, runs=()))
        together = {(run.number, run.slug): run for run in (*before.runs, *found.runs)}
        experiments[home] = replace(before, runs=tuple(together.values()))
    verdicts = []
    for home, experiment in experiments.items():
        required = requirements or required_by(home)
        if not required and not claimed:
            raise InputError(
                "nothing is required: give --require 'p99.999 < 1 ms' or "
                "--profile urllc-5g, or put `require: [...]` into the experiment file"
            ).at(home)
        verdicts.append(judge_experiment(experiment, required, confidence, progress, refuse=True))
    rows = [row for verdict in verdicts for row in verdict.verdicts]
    notices = [notice for verdict in verdicts for notice in verdict.warnings]
    return _verdict(rows, confidence, notices, undisturbed=undisturbed)


def judge_experiment(
    experiment: Experiment,
    requirements: Sequence[Requirement],
    confidence: float = CONFIDENCE,
    progress: Callable[[str], None] = lambda _: None,
    *,
    refuse: bool = False,
) -> VerdictRecord:
    """Hold requirements against the runs of an experiment that was read.

    With `refuse`, raises `InputError` for a run whose clocks leave more open than is required;
    otherwise such a run shows nothing.
    """
    rows: list[VerdictRow] = []
    notices: list[RunNotice] = []
    for members in group(experiment.runs):
        label = configuration_label(members[0], experiment.name)
        evidence = []
        for run in members:
            progress(run.slug)
            evidence.append(evidence_of(run))
            notices += [
                RunNotice(run=run.slug, code=notice.code, message=notice.message)
                for notice in evidence[-1].warnings
            ]
        for wanted in requirements:
            for one in evidence if refuse else ():
                if too_wide := unclaimable(wanted, one):
                    raise InputError(too_wide)
            rows.append(_row(label, wanted, [judge(wanted, one, confidence) for one in evidence]))
    return _verdict(rows, confidence, notices)


def _row(label: str, requirement: Requirement, found: list[RunFinding]) -> VerdictRow:
    """One requirement over the repeats of a configuration: the worst answer decides, and of equal
    ones that which is nearest to worse."""
    worst = max(found, key=lambda one: (ANSWERS.index(one.answer), _badness(one)))
    return VerdictRow(
        configuration=label,
        requirement=requirement.text,
        profile=requirement.profile,
        answer=worst.answer,
        decided_by=worst.run,
        measured=worst.measured,
        reason=worst.reason,
        runs=found,
    )


def _verdict(
    rows: list[VerdictRow],
    confidence: float,
    notices: list[RunNotice],
    *,
    undisturbed: bool = False,
) -> VerdictRecord:
    listed = [row.answer for row in rows]
    return VerdictRecord(
        answer=max(listed, key=ANSWERS.index, default="holds"),
        answers={answer: listed.count(answer) for answer in reversed(ANSWERS)},
        confidence=confidence,
        undisturbed=undisturbed,
        verdicts=rows,
        warnings=notices,
    )


def required_by(folder: Path) -> tuple[Requirement, ...]:
    """What the `require` of a folder's experiment file asks for; nothing without one.

    Raises `InputError` with the line of the file.
    """
    texts, place = required_texts(folder)
    try:
        if not isinstance(texts, list):
            raise InputError("write a list, such as ['p99.9 < 1 ms']")
        return parse_requirements(texts)
    except InputError as error:
        raise InputError(f"require: {error}").at(place) from error


def required_percentiles(paths: Iterable[Path]) -> set[float]:
    """The percentiles (0 to 1; 1 is the maximum) that the experiment files of runs require.

    The share of packets that must be in time is one, too. Raises `InputError` with the line of a
    file that was changed into one that cannot be read.
    """
    found: set[float] = set()
    for home in {home_of(path) for path in paths}:
        for wanted in required_by(home):
            match wanted.quantity:
                case "percentile" if wanted.argument is not None:
                    found.add(float(wanted.argument))
                case "reliability":
                    found.add(float(wanted.limit))
                case "max":
                    found.add(1.0)
    return found


def evidence_of(run: Run) -> Evidence:
    """What a run says."""
    evaluation, name = run.evaluation, run.slug
    if evaluation is None:
        return Evidence(name, f"no result: {run.failure}", warnings=run.warnings)
    refusal = None
    if run.valid is False:
        causes = [w.code for w in run.warnings if w.code.startswith("generator-")]
        why = f" ({', '.join(causes)})" if causes else ""
        refusal = f"the run is invalid{why}: the generator did not send the requested load"
    tail, without = None, NO_TIMES
    whole = evaluation if isinstance(evaluation, Evaluation) else None
    if whole is not None:
        try:
            tail = run.tail
        except InputError as error:
            without = str(error)
    inputs = whole.inputs if whole is not None else None
    good = evaluation.packets
    if good is not None:  # at least
        good = max(good - evaluation.counted.get("errors_timed", 0), 0)
    return Evidence(
        name=name,
        published=whole is None and not run.tool,
        refusal=refusal,
        packets=good,
        maximum=evaluation.max,
        mean=evaluation.mean,
        offered=evaluation.offered,
        counts=evaluation.counted,
        distribution=evaluation.distribution if evaluation.distribution[0].size else None,
        percentiles=evaluation.curve,
        gaps=evaluation.gaps("egress"),
        gaps_before=evaluation.gaps("ingress"),
        rate=tail.rate if tail is not None else run.rate,
        tail=tail,
        without_tail=without,
        warnings=run.all_warnings,
        within=evaluation.within,
        egress_step_ns=1 if inputs is None else inputs.egress.resolution_ns,
        before=NOTHING_UNREAD if inputs is None else Unread.of(inputs.ingress),
        after=NOTHING_UNREAD if inputs is None else Unread.of(inputs.egress),
        unread_told=inputs is not None,
        events=run.record.events if run.record is not None else (),
    )


def _badness(found: RunFinding) -> float:
    """How near a finding is to the next worse answer, or how far it went, for one requirement."""
    figures = found.figures
    if found.answer == "violated" and "late_at_least" in figures:
        return float(figures["late_at_least"] / figures["packets"])
    keys = ("upper", "high_ns", "level_ns", "mean_ns")
    return next((float(figures[key]) for key in keys if figures.get(key) is not None), 0.0)
