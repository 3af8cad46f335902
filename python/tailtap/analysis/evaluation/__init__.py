"""From a pair of captures to exact statistics of the latency between them."""

from __future__ import annotations

from tailtap.analysis.evaluation.evaluate import Settings, evaluate
from tailtap.analysis.evaluation.many import Captures, evaluate_many
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.transactions import Transactions, evaluate_transactions
from tailtap.analysis.evaluation.values import Histogram, WorstPacket
from tailtap.records.evaluation import Percentile

__all__ = [
    "Captures",
    "Evaluation",
    "Histogram",
    "Percentile",
    "Settings",
    "Transactions",
    "WorstPacket",
    "evaluate",
    "evaluate_many",
    "evaluate_transactions",
]
