"""`dut.tuning`: which knobs of the table are set while a run is made.

`ablation`, as the values that vary, tells the knobs apart: all of them, then all but one, for each
that this machine does not meet by itself, then none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter

from tailtap.base.document import Document
from tailtap.base.errors import InputError
from tailtap.base.schema import Cpus, Strict, Written, as_value_error
from tailtap.base.units import list_cpus
from tailtap.host.knobs import KNOBS, named, select
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import plan

VARIED = "dut.tuning"
ABLATION = "ablation"
NONE, RUNTIME, FULL = "none", "runtime", "full"


def _can_be_set(name: str) -> str:
    with as_value_error():
        select([name])
    knob = named(name)
    if knob is not None and knob.settable != "runtime":
        how = "with dut.boot, or all of them with `full`" if knob.word else "by tailtap"
        raise ValueError(
            f"{name} cannot be set while the machine runs"
            + (f": set it {how}" if knob.word else f", nor otherwise {how}")
        )
    return name


Name = Annotated[str, AfterValidator(_can_be_set), Written("name of a knob or of a group")]


class Without(Strict):
    """All that is recommended and can be set while the machine runs, but some."""

    without: Name | list[Name] = Field(
        description="The knobs or groups that are left as they are.",
        examples=["transparent-huge-pages", ["timers", "transparent-huge-pages"]],
    )

    @property
    def names(self) -> list[str]:
        """The knobs and groups."""
        return [self.without] if isinstance(self.without, str) else self.without


def _form(value: object) -> str:
    if isinstance(value, list):
        return "list"
    return "mapping" if isinstance(value, Mapping | Without) else "word"


Tuning: TypeAlias = Annotated[
    Annotated[Literal["none", "runtime", "full"], Tag("word")]
    | Annotated[list[Name], Tag("list")]
    | Annotated[Without, Tag("mapping")],
    Discriminator(_form),
    Written("`none`, `runtime`, `full`, list of knobs and groups, or `{without: …}`"),
]


def knobs_of(tuning: str | list[str] | Without) -> list[str]:
    """The knobs that a value of `dut.tuning` sets, by their names in the order of the table."""
    if tuning == NONE:
        return []
    every = [knob for knob in KNOBS if knob.settable == "runtime"]
    recommended = [knob.name for knob in every if knob.recommended]
    if isinstance(tuning, str):
        return recommended
    if isinstance(tuning, Without):
        less = {knob.name for knob in select(tuning.names)} if tuning.names else set()
        return [name for name in recommended if name not in less]
    if not tuning:
        return []
    chosen = {knob.name for knob in select(tuning)}
    return [
        knob.name
        for knob in every
        if knob.name in chosen and (knob.recommended or knob.name in tuning)
    ]


def expanded(document: Document) -> Document:
    """`document` with `ablation` replaced by its values; the machine says which knobs those are.

    Raises `InputError` when this machine meets every knob.
    """
    vary = document.data.get("vary")
    if not isinstance(vary, Mapping) or vary.get(VARIED) != ABLATION:
        return document
    values = ablation(_purpose(document.data.get("dut")))
    return document.with_value(("vary", VARIED), values, document.place(("vary", VARIED)))


def ablation(purpose: Purpose, tree: Tree | None = None) -> list[Any]:
    """All knobs that can be set, all but one each, and none."""
    changes = plan(tree or Tree(), purpose, knobs_of(RUNTIME)).changes
    if not changes:
        raise InputError(
            "vary.dut.tuning: ablation has nothing to leave out: on this machine nothing that can "
            "be set while it runs is other than it should be; see `tailtap host audit`"
        )
    return [RUNTIME, *({"without": change.knob.name} for change in changes), NONE]


def purpose_of(
    virtualization: str, cpus: Sequence[int], cards: Sequence[str] = (), tree: Tree | None = None
) -> Purpose:
    """What the machine that a DuT is on is tuned for."""
    role = {"container": "container", "machine": "vm-host"}.get(virtualization, "bare-metal")
    tree = tree or Tree()
    there = set(tree.online)
    if there and not set(cpus) < there:
        raise InputError(
            f"dut.tuning: dut.cpus {list_cpus(cpus)} leave no other CPU of this machine for "
            "interrupts and kernel threads: leave one out, or leave out dut.tuning"
        )
    return Purpose.of(tree, role, list(cpus), None, list(cards))


def _purpose(dut: object) -> Purpose:
    """The purpose of an experiment's file that is not checked yet; what varies has no say."""
    cpus = dut.get("cpus") if isinstance(dut, Mapping) else None
    given: TypeAdapter[tuple[int, ...]] = TypeAdapter(Cpus)
    try:
        return purpose_of("none", [1] if cpus is None else given.validate_python(cpus))
    except ValueError:
        raise InputError("dut.cpus: write a list of CPU numbers, such as [1]") from None
