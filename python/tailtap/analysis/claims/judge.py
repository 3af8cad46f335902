"""The claims of a folder held against its runs: held, not shown, or contradicted.

A requirement is judged as by `tailtap verdict`: it is contradicted where it is violated. A
comparison is a pair of one-sided exact rank tests over the repeats, as in `compare.gate`, each at
`ALPHA`. Where a claim is about several configurations, all must show it, which needs no correction
(Berger 1982); one of them contradicts it, at a level divided by their number (Bonferroni).

Claims are stated before the runs and each is judged by itself: of claims that are wrong, one in
twenty may be called held.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from tailtap.analysis.claims.model import Claim
from tailtap.analysis.compare.configurations import Configuration, exclusions
from tailtap.analysis.compare.gate import p_above, p_below, smallest_one_sided
from tailtap.analysis.compare.ranking import Standing, shift_of, values_of
from tailtap.analysis.compare.significance import ratio_text
from tailtap.analysis.runs.groups import configuration_label, group
from tailtap.analysis.runs.reader import home_of, planned_runs, read_runs
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.analysis.runs.text import as_words
from tailtap.analysis.verdict.judge import CONFIDENCE
from tailtap.analysis.verdict.requirement import parse_percentile, parse_requirements
from tailtap.analysis.verdict.runs import ANSWERS, judge_experiment
from tailtap.base.document import Document, explain, load
from tailtap.base.errors import InputError
from tailtap.records.run import CASE
from tailtap.records.verdict import Answer, ClaimEvidence, ClaimRow, Held, VerdictRecord

ALPHA = 0.05
"""The probability that a comparison that is wrong is called held, or one that is right is called
contradicted."""
ORDER: Sequence[Held] = ("contradicted", "not shown", "held")
"""The worst answer first."""
_OF_VERDICT: Mapping[Answer, Held] = {
    "holds": "held",
    "not shown": "not shown",
    "violated": "contradicted",
}


def judge_claims(experiment: Experiment, claims: Sequence[Claim]) -> list[ClaimRow]:
    """What the runs of an experiment show of its claims, in their order.

    Runs that were planned and never made are to be among them, as those that are not there show
    nothing.
    """
    return [_judged(experiment, claim, number) for number, claim in enumerate(claims, 1)]


def test_text(claim: Claim) -> str:
    """The test behind a claim, in words: ``p99.9 no worse than bare-metal by 5 %``."""
    about = f"{_told(claim.chosen)}: " if claim.chosen else ""
    if claim.require is not None:
        return f"{about}{', '.join(claim.require)}"
    return f"{about}{_relation(claim, _told(claim.against or {}))}"


def _told(values: Mapping[str, Any]) -> str:
    return " · ".join(
        " or ".join(map(as_words, value)) if isinstance(value, list) else as_words(value)
        for value in values.values()
    )


def _relation(claim: Claim, other: str) -> str:
    than = "from" if claim.is_ in ("different", "no different") else "than"
    by = f" by {claim.by}" if claim.by else ""
    return f"{claim.at} {claim.is_} {than} {other}{by}"


def _judged(experiment: Experiment, claim: Claim, number: int) -> ClaimRow:
    rows = list(_evidence(experiment, claim))
    answers = {row.answer for row in rows}
    answer: Held = next((one for one in ORDER if one in answers), "not shown")
    decides = [row for row in rows if row.answer == answer]
    reason = "no such run was planned here"
    if decides:
        of = f" ({len(decides)} of {len(rows)} alike)" if rows[1:] else ""
        name = f"{decides[0].configuration}: " if rows[1:] else ""
        reason = f"{name}{decides[0].reason}{of}"
    return ClaimRow(
        id=claim.id or f"claim-{number}",
        says=claim.says,
        test=test_text(claim),
        answer=answer,
        reason=reason,
        compares=claim.against is not None,
        evidence=rows,
    )


def _evidence(experiment: Experiment, claim: Claim) -> Iterator[ClaimEvidence]:
    chosen = [run for run in experiment.runs if _fits(run, claim.chosen)]
    if claim.require is not None:
        yield from _required(replace(experiment, runs=tuple(chosen)), claim.require)
        return
    others = [run for run in experiment.runs if _fits(run, claim.others)]
    pairs = list(_paired(chosen, others, claim))
    for members, partners in pairs:
        yield _compared(experiment.name, claim, members, partners, len(pairs))


def _required(experiment: Experiment, require: Sequence[str]) -> Iterator[ClaimEvidence]:
    for row in judge_experiment(experiment, parse_requirements(require), CONFIDENCE).verdicts:
        who = f"{row.decided_by}: " if row.runs[1:] else ""
        yield ClaimEvidence(
            configuration=row.configuration,
            test=row.requirement,
            answer=_OF_VERDICT[row.answer],
            measured=row.measured,
            reason=f"{who}{row.reason}",
            runs=len(row.runs),
        )


def _values(run: Run) -> Mapping[str, Any]:
    """The varied values of a run, as the file has them where that is known."""
    return run.record.variables if run.record is not None else run.variables


def _fits(run: Run, wanted: Mapping[str, Any]) -> bool:
    values = _values(run)
    return all(
        key in values and values[key] in [value, *(value if isinstance(value, list) else ())]
        for key, value in wanted.items()
    )


def _paired(
    chosen: Sequence[Run], others: Sequence[Run], claim: Claim
) -> Iterator[tuple[list[Run], list[Run]]]:
    """Each configuration with that it is held against; an empty list where there is none."""

    apart = set(claim.against or {})
    if CASE in apart:  # it stands for the values that change with it
        apart |= {key for run in chosen for key in _values(run) if _follows(key, chosen, others)}

    def rest(run: Run) -> str:
        kept = {k: v for k, v in _values(run).items() if k not in apart}
        return json.dumps([run.root, kept], sort_keys=True, default=str)

    partners = {rest(members[0]): members for members in group(others, _values)}
    for members in group(chosen, _values):
        if not _fits(members[0], claim.others):
            yield members, partners.get(rest(members[0]), [])


def _follows(key: str, chosen: Sequence[Run], others: Sequence[Run]) -> bool:
    """Whether each case has one value of a key."""
    found: dict[str, Any] = {}
    every = map(_values, (*chosen, *others))
    return all(found.setdefault(one.get(CASE, ""), one.get(key)) == one.get(key) for one in every)


def _compared(
    name: str, claim: Claim, members: Sequence[Run], partners: Sequence[Run], of: int
) -> ClaimEvidence:
    p = float(parse_percentile(claim.at or ""))
    label = configuration_label(members[0], name)
    other = configuration_label(partners[0], name) if partners else _told(claim.against or {})
    found = ClaimEvidence(
        configuration=label, against=other, test=_relation(claim, other), answer="not shown",
        measured="", reason="", runs=0, against_runs=0,
    )  # fmt: skip
    if not partners:
        found.reason = "no such run was planned to hold it against"
        return found
    try:
        new, base = _standing(label, members, p), _standing(other, partners, p)
    except InputError as error:
        found.reason = str(error)
        return found
    sizes = len(new.values), len(base.values)
    found.runs, found.against_runs = sizes
    left = "; ".join(exclusions((*members, *partners)))
    if not all(sizes):
        found.reason = f"left out: {left}"
        return found
    shift = shift_of(new, base)
    found.ratio, found.low, found.high = shift.ratio, shift.low, shift.high
    found.measured = ratio_text(shift) if shift.ratio else "packets were lost"
    told = f"{found.measured}, {sizes[0]} against {sizes[1]} runs"
    if p < 1 and any(v.supported is False for v in (*new.values, *base.values)):
        found.reason = f"fewer than ten packets lie above {claim.at} in some runs"
    elif smallest_one_sided(*sizes) > ALPHA:
        found.reason = f"{told}: so few can never show it; three of each can"
    else:
        found.answer = _answer(claim, new, base, of)
        undecided = ": the runs scatter too much to tell" * (found.answer == "not shown")
        found.reason = f"{told}{undecided}"
    found.reason += f" (left out: {left})" if left else ""
    return found


def _standing(label: str, runs: Sequence[Run], p: float) -> Standing:
    good = tuple(run for run in runs if not run.excluded)
    one = Configuration(label, {}, {}, good, ())
    return Standing(one, values_of(one, p))


def _answer(claim: Claim, new: Standing, base: Standing, of: int) -> Held:
    margin = claim.margin
    later, earlier = p_above(new, base, margin), p_below(new, base, -margin)
    not_later, not_earlier = p_below(new, base, margin), p_above(new, base, -margin)
    # Of each relation: the p-value of showing it, and of showing that it is wrong.
    shown, wrong = {
        "worse": (later, not_later),
        "no worse": (not_later, later),
        "better": (earlier, not_earlier),
        "different": (2 * min(later, earlier), max(not_later, not_earlier)),
        "no different": (max(not_later, not_earlier), 2 * min(later, earlier)),
    }[claim.is_ or "worse"]
    if shown <= ALPHA:
        return "held"
    return "contradicted" if wrong <= ALPHA / of else "not shown"


SECTION = "claims"
EXPERIMENT = "experiment.yaml"
ANSWER: Mapping[Held, Answer] = {
    "held": "holds",
    "not shown": "not shown",
    "contradicted": "violated",
}
"""What a verdict calls an answer about a claim."""


def claims_shown(experiment: Experiment) -> list[ClaimRow]:
    """What an experiment's own runs show of the claims in its folder; empty without any.

    Raises `InputError` for an experiment file that was changed into one that cannot be read.
    """
    claims = claims_of(experiment.folder)
    if not claims:
        return []

    own = tuple(run for run in experiment.own if run.status != "planned")
    runs = (*own, *planned_runs(experiment))
    return judge_claims(replace(experiment, runs=runs), claims)


def claims_of(folder: Path) -> list[Claim]:
    """The claims of the experiment file in a folder. Raises `InputError` with the line."""
    file = folder / EXPERIMENT
    document = load(file) if file.is_file() else None
    return claims_in(document) if document is not None and document.data.get(SECTION) else []


def claims_in(document: Document) -> list[Claim]:
    """The claims of an experiment file. Raises `InputError` with the line."""
    from pydantic import ValidationError

    rows = document.data.get(SECTION, [])
    if not isinstance(rows, list):
        raise document.wrong((SECTION,), "write a list of claims")
    known = [field.alias or name for name, field in Claim.model_fields.items()]
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(Claim.model_validate(row))
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            path = (SECTION, number, *detail["loc"])
            said = explain(detail, path, lambda _: known)
            raise document.wrong(path, said) from error
    return found


def claims_at(paths: Sequence[Path]) -> list[ClaimRow]:
    """What the experiments at `paths` show of their claims; none for runs without their others."""
    whole = [path for path in paths if path.absolute() == home_of(path) and path.is_dir()]
    return [row for path in whole if claims_of(path) for row in claims_shown(read_runs(path))]


def with_claims(found: VerdictRecord, claims: Sequence[ClaimRow]) -> VerdictRecord:
    """A verdict that has the claims as well, and whose answer is the worst of all."""
    answers = [found.answer] if found.verdicts else []
    answers += [ANSWER[row.answer] for row in claims]
    return structs.replace(found, claims=list(claims), answer=max(answers, key=ANSWERS.index))
