"""From a pair of captures to exact statistics of the latency between them."""

from __future__ import annotations

from tailtap.evaluation.evaluate import evaluate
from tailtap.evaluation.model import Evaluation
from tailtap.evaluation.values import Histogram, Percentile, Warning, WorstPacket

__all__ = ["Evaluation", "Histogram", "Percentile", "Warning", "WorstPacket", "evaluate"]
