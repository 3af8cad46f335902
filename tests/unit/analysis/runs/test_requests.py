"""Which of the transactions in a run's captures is the run's result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailtap.analysis.evaluation.transactions import Transactions
from tailtap.analysis.runs.requests import are_requests, main_kind
from tailtap.base.errors import InputError
from tailtap.records.run import EvaluationSettings


def found(**requests: int | None) -> Transactions:
    """Transactions with so many requests of each kind; None for a kind without any answer."""
    kinds = [
        SimpleNamespace(
            name=kind.replace("_", "-"),
            counts=SimpleNamespace(requests=1000 if number is None else number),
            evaluation=None if number is None else kind,
        )
        for kind, number in requests.items()
    ]
    return Transactions([], "first", 1, cast("Any", kinds), [])


def test_the_kind_with_most_requests_is_the_result() -> None:
    assert cast("Any", main_kind(found(tcp_handshake=8, http=500, dns=None), None)) == "http"
    assert cast("Any", main_kind(found(http=8, dns=8), None)) == "http"


def test_a_kind_that_is_asked_for_must_be_there() -> None:
    assert cast("Any", main_kind(found(dns=8, http=500), "dns")) == "dns"
    for wanted in ("dns", "ntp"):
        with pytest.raises(InputError, match=f"of kind {wanted} was answered, and there are http"):
            main_kind(found(http=500, dns=None), wanted)


def test_runs_say_whether_they_are_of_requests() -> None:
    assert are_requests(EvaluationSettings(match="transactions"))
    assert not are_requests(EvaluationSettings())
    assert not are_requests(None)
