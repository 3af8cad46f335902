"""`dut.irq`: where the DuT's packets are received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag

from tailtap.schema import Cpu, Written


def sorted_cpus(cpus: Sequence[int]) -> tuple[int, ...]:
    """CPUs in their order. Raises `ValueError` when one is named twice."""
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"a CPU is named twice in {list(cpus)}")
    return tuple(sorted(cpus))


def _form(value: object) -> str:
    return "list" if isinstance(value, list | tuple) else "word"


IrqOption: TypeAlias = Annotated[
    Annotated[Literal["none", "node", "core"], Tag("word")]
    | Annotated[
        tuple[Cpu, ...],
        Field(strict=False, min_length=1),
        AfterValidator(sorted_cpus),
        Tag("list"),
    ],
    Discriminator(_form),
    Written("`none`, `node`, `core`, or list of CPU numbers"),
]
