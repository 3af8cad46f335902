"""What the model says against a value, in words that a writer of experiment files understands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tailtap.document import KeyPath
from tailtap.suggest import did_you_mean


def explain(
    detail: Mapping[str, Any], location: KeyPath, known: Callable[[KeyPath], Iterable[str]]
) -> str:
    """The reason of one of pydantic's `ErrorDetails` at `location`.

    `known` tells the keys that may stand below a path.
    """
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"unknown key: {did_you_mean(str(location[-1]), list(known(location[:-1])))}"
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    message = str(detail["msg"])
    return f"{message[:1].lower()}{message[1:]}, not {detail['input']!r}"
