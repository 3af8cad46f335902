"""Runs of servers: which of the transactions that their captures hold is the run's result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.settings import Settings
from tailtap.analysis.runs.folder import RunFolder
from tailtap.base.errors import InputError
from tailtap.base.files import make_folder
from tailtap.records.run import EvaluationSettings

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.transactions import Transactions

TRANSACTIONS = "transactions"
"""`evaluation.match` of an experiment whose DuT answers."""


def are_requests(asked: EvaluationSettings | None) -> bool:
    """Whether the captures of a run hold requests and answers, and not the same packets twice."""
    return asked is not None and asked.match == TRANSACTIONS


def evaluate_requests(folder: RunFolder, settings: Settings, kind: str | None) -> Evaluation:
    """How long the requests of a run waited for their answers: the `kind` of `main_kind`.

    All kinds are written into the run's folder. Raises `InputError` when no request was answered,
    or none of the kind that is asked for.
    """
    from tailtap.analysis.evaluation.sources import source_of
    from tailtap.analysis.evaluation.transactions import transactions_by

    found = transactions_by(settings, source_of(folder.ingress), source_of(folder.egress))
    make_folder(folder.transactions, below=folder.top)
    found.write(folder.transactions)
    return main_kind(found, kind)


def main_kind(found: Transactions, wanted: str | None) -> Evaluation:
    """The transactions of the kind, or else of the one with most requests; of equal ones the first.

    Raises `InputError` where no request of the kind was answered.
    """
    if wanted is None:
        answered = [one for one in found.kinds if one.evaluation is not None]
        wanted = max(answered, key=lambda one: one.counts.requests).name
    if wanted not in found:
        there = ", ".join(found.answered)
        raise InputError(
            f"no request of kind {wanted} was answered, and there are {there}: take one of these "
            "in evaluation.transaction"
        )
    return found[wanted]
