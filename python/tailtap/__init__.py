"""tailtap: measure, explain and predict the tail latency of packet processing.

`evaluate` and `evaluate_transactions` are what `tailtap evaluate` is made of; see
docs/howto/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.evaluate import evaluate
    from tailtap.analysis.evaluation.model import Evaluation
    from tailtap.analysis.evaluation.transactions import Transactions, evaluate_transactions

    __version__: str

__all__ = ["Evaluation", "Transactions", "__version__", "evaluate", "evaluate_transactions"]


def __getattr__(name: str) -> object:
    """What `__all__` lists, imported when asked for: `tailtap --help` needs none of it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailtap")
    if name in __all__:
        from tailtap.analysis import evaluation

        return getattr(evaluation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
