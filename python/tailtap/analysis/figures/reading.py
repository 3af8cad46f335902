"""The figures that a file asks for, read again where results are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from tailtap.analysis.figures.model import (
    MOST,
    Along,
    Beside,
    Figure,
    Scale,
    Scales,
    check_figures,
)
from tailtap.base.document import Document, KeyPath, Misfit, dotted, load, reason
from tailtap.base.errors import InputError, InputErrors
from tailtap.base.suggest import did_you_mean

SECTION = "figures"
_MODELS: Mapping[str, type[BaseModel]] = {
    **dict.fromkeys(("panels", "series", "over"), Along),
    **dict.fromkeys(("x", "y"), Scale),
    "axes": Scales,
    "beside": Beside,
}
"""What stands below the keys of a figure."""


def figures_in(
    file: Path, values: Mapping[str, Sequence[str]], *, named: bool = False
) -> list[Figure]:
    """The figures of an experiment file, or of a file with nothing else; none without `figures`.

    `values` are those of each variable of the runs that are shown; the file is a stranger's unless
    the user `named` it. Raises `InputError` with the
    line of what cannot be drawn.
    """
    document = load(file, named=named)
    written = document.data.get(SECTION, [])
    if not isinstance(written, list) or len(written) > MOST:
        raise document.wrong((SECTION,), f"write a list of at most {MOST} mappings")
    try:
        found = TypeAdapter(list[Figure]).validate_python(written)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InputErrors(_sentences(document, details)) from error
    try:
        check_figures(found, values, whole=False)
    except Misfit as misfit:
        raise InputError(_told(document, misfit.at, str(misfit))) from misfit
    return found


def _sentences(document: Document, details: Sequence[Any]) -> list[str]:
    """What is wrong with which value, each once."""
    found = []
    for detail in details:
        fault = detail.get("ctx", {}).get("error")
        path: KeyPath = (SECTION, *detail["loc"], *(fault.at if isinstance(fault, Misfit) else ()))
        if detail["type"] == "extra_forbidden":
            said = f"unknown key: {did_you_mean(str(path[-1]), _keys(path))}"
        else:
            said = reason([detail])
        found.append(_told(document, path, said))
    return list(dict.fromkeys(found))


def _keys(path: KeyPath) -> list[str]:
    """The keys that may stand where the last of `path` does."""
    above = next((part for part in reversed(path[:-1]) if part in _MODELS), None)
    return list((Figure if above is None else _MODELS[str(above)]).model_fields)


def _told(document: Document, path: KeyPath, said: str) -> str:
    return f"{document.place(path)}: {dotted(path)}: {said}"
