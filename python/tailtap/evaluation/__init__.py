"""From a pair of captures to exact statistics of the latency between them."""

from __future__ import annotations

from tailtap.evaluation.evaluate import Settings, evaluate
from tailtap.evaluation.many import Captures, evaluate_many
from tailtap.evaluation.model import Evaluation
from tailtap.evaluation.values import Histogram, Percentile, Warning, WorstPacket

__all__ = [
    "Captures",
    "Evaluation",
    "Histogram",
    "Percentile",
    "Settings",
    "Warning",
    "WorstPacket",
    "evaluate",
    "evaluate_many",
]
