"""The claims of an experiment's folder, and what its runs show of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from tailtap.analysis.runs.reader import home_of, planned_runs, read_runs
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.verdict.runs import ANSWERS
from tailtap.base.document import Document, load
from tailtap.records.verdict import Answer, ClaimRow, Held, VerdictRecord

if TYPE_CHECKING:
    from tailtap.analysis.claims.model import Claim

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
    from tailtap.analysis.claims.judge import judge_claims

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

    from tailtap.analysis.claims.model import Claim
    from tailtap.base.document import explain

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
