"""tailtap: the whole evaluation with all its outputs written, percentiles besides."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from program import TAILTAP

from benches import process
from benches.timing import Answer
from benches.traffic import PERCENTILES, Pair
from tailtap.analysis import evaluation
from tailtap.analysis.evaluation.evaluate import Settings


def function(key: str, window_ns: int = Settings.window_ns) -> Callable[[Pair], Answer]:
    """The functions of the Python package, called in this process."""

    def run(pair: Pair) -> Answer:
        with tempfile.TemporaryDirectory(dir=pair.egress.parent) as out:
            found = evaluation.evaluate(pair.ingress, pair.egress, key=key, window_ns=window_ns)
            found.write(out)
            return Answer([percentile.value for percentile in found.percentiles(PERCENTILES)])

    return run


def program(key: str) -> Callable[[Pair], Answer]:
    """The program as typed, from its start to its end."""

    def run(pair: Pair) -> Answer:
        with tempfile.TemporaryDirectory(dir=pair.egress.parent) as out:
            options = ("--key", key, "--percentiles", "papers", "--out", out, "--json", "--quiet")
            finished = process.run(TAILTAP, "evaluate", pair.ingress, pair.egress, *options)
            assert (Path(out) / "evaluation.json").exists()
        latency = json.loads(finished.stdout)["latency_ns"]
        return Answer([percentile["value"] for percentile in latency["percentiles"]], finished)

    return run
