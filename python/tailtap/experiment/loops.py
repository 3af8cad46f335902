"""Loop variables of the testbed service pos as what varies in an experiment.

pos calls a host's script once for each combination of the lists of a file, such as
``pkt_rate: [10000, 50000]``, which ``pos allocations set_variables --as-loop`` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailtap.base.document import Document, FileKind, load
from tailtap.base.errors import InputError
from tailtap.base.units import exact_rate
from tailtap.experiment.combinations import SECTIONS, SINGLE, VARY
from tailtap.records.run import FCS, MOONGEN_SIZE, RATES, REPEATS

LOOP = "loop"
"""The key that names such a file."""
FILE = FileKind("loop variables", "loop variables are a mapping from names to lists of values")


def looped(document: Document, folder: Path, *, named: bool = True) -> Document:
    """`document` with the variables of its loop file in the place of `loop`.

    The file is below `folder`, that of the experiment, or where the user is who gave it by
    ``--set``. A variable is a key path, or called as in published experiments with MoonGen; of
    others, those with one value vary nothing, and are left out. Raises `InputError`.
    """
    name = document.data.get(LOOP)
    if name is None:
        return document
    place = document.place((LOOP,))
    if not isinstance(name, str) or not name:
        raise document.wrong((LOOP,), "write the name of a file with loop variables of pos")
    path = Path(name) if place.startswith("--set") else folder / name
    try:
        loop = load(path, FILE, named=named)
    except InputError as error:
        raise document.wrong((LOOP,), str(error)) from error
    data = {key: value for key, value in document.data.items() if key != LOOP}
    places = {at: where for at, where in document.places.items() if at[:1] != (LOOP,)}
    found = Document(document.name, data, places)
    for key, values in loop.data.items():
        where = loop.place((key,))
        if not isinstance(values, list) or not values:
            raise loop.wrong((key,), "write a list of values, such as [10000, 50000]")
        if key in REPEATS:
            found = found.with_value(("repeat",), len(values), where)
        elif key in RATES:
            rates = [_number(loop, key, values, at) for at in range(len(values))]
            found = found.with_value((VARY, "traffic.rate"), list(map(exact_rate, rates)), where)
        elif key == MOONGEN_SIZE:
            sizes = [_number(loop, key, values, at) + FCS for at in range(len(values))]
            found = found.with_value((VARY, "traffic.size"), [f"{one} B" for one in sizes], where)
        elif key in SINGLE or key.partition(".")[0] in SECTIONS:
            found = found.with_value((VARY, key), values, where)
        elif len(values) > 1:
            raise loop.wrong(
                (key,), "nothing here is called so: write the key path that it varies, such as "
                f"dut.forwarder, or {', '.join((*RATES, MOONGEN_SIZE, *REPEATS))}",
            )  # fmt: skip
    return found


def _number(loop: Document, key: str, values: Sequence[Any], at: int) -> int:
    value = values[at]
    if type(value) is not int or value < 1:
        raise loop.wrong((key, at), f"{value!r} is wrong, wanted: a whole number")
    return value
