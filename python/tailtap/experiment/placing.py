"""`dut.irq`: where the DuT's packets are received."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Tag

from tailtap.base.schema import Cpus, Written


def _form(value: object) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    return "list" if number or isinstance(value, list | tuple) else "word"


IrqOption: TypeAlias = Annotated[
    Annotated[Literal["none", "node", "core"], Tag("word")] | Annotated[Cpus, Tag("list")],
    Discriminator(_form),
    Written("`none`, `node`, `core`, CPU number, or list of them"),
]
