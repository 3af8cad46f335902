"""tailtap: measure, explain and predict the tail latency of packet processing.

`evaluate` and `evaluate_transactions` are what `tailtap evaluate` is made of; the others do what
the commands of their names do. See docs/howto/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.evaluate import evaluate
    from tailtap.analysis.evaluation.model import Evaluation
    from tailtap.analysis.evaluation.transactions import Transactions, evaluate_transactions
    from tailtap.library import (
        compare,
        explain,
        judge_change,
        publish,
        reproduce,
        run,
        search,
        verdict,
    )

    __version__: str

__all__ = [
    "Evaluation",
    "Transactions",
    "__version__",
    "compare",
    "evaluate",
    "evaluate_transactions",
    "explain",
    "judge_change",
    "publish",
    "reproduce",
    "run",
    "search",
    "verdict",
]


def __getattr__(name: str) -> object:
    """What `__all__` lists, imported when asked for: `tailtap --help` needs none of it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailtap")
    if name in __all__:
        from importlib import import_module

        evaluating = name.startswith(("Eval", "Trans", "evaluate"))
        where = "tailtap.analysis.evaluation" if evaluating else "tailtap.library"
        return getattr(import_module(where), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
