"""Pairs of captures, evaluated: what is found in them and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailtap.analysis.evaluation import Captures, Evaluation, Settings, evaluate, evaluate_many
from tailtap.analysis.evaluation.executors import Threads
from tailtap.base.errors import InputError


def evaluate_pair(folder: Path, before: bytes, after: bytes, **options: Any) -> Evaluation:
    """The evaluation of files with these bytes, of captures that run all the time if no option says
    anything else."""
    for name, content in (("in", before), ("out", after)):
        (folder / name).write_bytes(content)
    return evaluate(folder / "in", folder / "out", **({"throughout": True} | options))


def refusal(folder: Path, before: bytes, after: bytes, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        evaluate_pair(folder, before, after, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def in_pieces(
    ingress: Path, egress: Path, settings: Settings | None = None, *, chunk_bytes: int
) -> Evaluation:
    captures = Captures(ingress, egress, settings or Settings())
    with Threads(2) as threads:
        [(_, found)] = evaluate_many([captures], threads, chunk_bytes=chunk_bytes)
    assert isinstance(found, Evaluation)
    return found


def said(found: Evaluation) -> dict[str, str]:
    """The warnings by their codes, but for that of few packets."""
    return {one.code: one.message for one in found.warnings if one.code != "few-packets"}


def latencies(found: Evaluation) -> list[int]:
    times: list[int] = np.repeat(*found.distribution).tolist()
    return times
