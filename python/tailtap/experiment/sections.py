"""Small sections of an experiment file: `evaluation`, how packets are matched; `events`, what is
done to the DuT's machine meanwhile, and when; `dut.neighbours`, what loads CPUs; `dut.tuning`,
which knobs of the table are set while a run is made.

`ablation`, as the values that vary, tells the knobs apart: all of them, then all but one, for each
that this machine does not meet by itself, then none.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic.functional_serializers import model_serializer

from tailtap.base.document import Document, Misfit, require_fit
from tailtap.base.errors import InputError, did_you_mean
from tailtap.base.schema import (
    Cpus,
    NoOptions,
    Strict,
    Time,
    Written,
    as_value_error,
    check_fields,
    name_words,
)
from tailtap.base.schema import Matching as Form
from tailtap.base.units import format_time, list_cpus
from tailtap.experiment.fields import as_misfit
from tailtap.host.knobs import KNOBS, named, select
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import plan
from tailtap.lab.instruments.taps.kinds import HARDWARE
from tailtap.lab.neighbours import NEIGHBOURS

if TYPE_CHECKING:
    from tailtap.experiment.model import Experiment


class Matching(Strict):
    """How ingress and egress are matched; times in ns."""

    match: Literal["packets", "transactions"] = Field(
        default="packets",
        description="How long packets took through the DuT, or how long requests waited for "
        "answers (dut.forwarder: server).",
        examples=["transactions"],
    )
    transaction: str | None = Field(
        default=None,
        description="Which kind of transactions is the run's result. By default that with most "
        "requests.",
        examples=["dns"],
    )
    key: str = Field(
        default="auto",
        description="How packets are matched. Stamps have ids (moonsniff), which auto finds; with "
        "tap.format: pcap it is any key of `tailtap evaluate --key`.",
        examples=["moonsniff", "packet-nat"],
    )
    trim: Time = Field(
        default=0,
        description="How much time the evaluation leaves out at the beginning.",
        examples=["500 ms"],
    )
    window: Time = Field(
        default=5_000_000_000,
        description="A packet that is not seen behind the DuT within this time is lost.",
        examples=["1 s"],
    )

    @field_validator("transaction")
    @classmethod
    def _transaction_is_known(cls, kind: str | None) -> str | None:
        if kind is not None:
            from tailtap.analysis.evaluation.transactions import KINDS

            if kind not in KINDS:
                raise ValueError(f"there is no kind {kind!r}: {did_you_mean(kind, KINDS)}")
        return kind

    @field_validator("window")
    @classmethod
    def _window_is_positive(cls, window: int) -> int:
        if window == 0:
            raise ValueError("the window must be longer than 0 s: no packet could match")
        return window


PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "pid")
"""The names that a word can have in braces: both ports of the DuT, the first of its CPUs, all of
them with commas, and the process that forwards, by its number on the device's machine."""
DUT, GENERATOR, HOST = "dut", "generator", "host"
MOST_EVENTS = 10_000
"""So many events of a run are told apart by nobody."""


def _words(value: object) -> object:
    """One text is a command line; no shell sees it."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no command: {error}") from error


Words = Annotated[
    tuple[str, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_words),
    Written("list of words, or a command line", or_schema={"type": "string"}),
]


class Event(Strict):
    """A command that runs at a time, and the time around it that is looked at by itself."""

    at: Time = Field(
        description="When it begins, from the first packet that counts on.", examples=["3 s"]
    )
    run: Words = Field(
        description="The command. {ingress} and {egress}, the ports of the DuT, {cpu}, the first "
        "of dut.cpus, {cpus}, all of them with commas, and {pid}, the process that forwards (for "
        "where: host), are filled in; {{ is a brace.",
        examples=[["nft", "-f", "/srv/new.nft"], "ip link set {egress} down"],
    )
    where: str = Field(
        default=DUT,
        description="Where it runs: dut (in a line its first node), generator, host (the device's "
        "machine, outside of both), or one of dut.nodes.",
        examples=[HOST],
    )
    every: Time | None = Field(
        default=None,
        description="It is repeated so often until packets end. By default it happens once.",
        examples=["1 s"],
    )
    name: Annotated[str, Form(r"^[a-z][a-z0-9-]{0,31}$", name_words(32, "reload"))] | None = Field(
        default=None,
        description="What it is called in results. By default the program's name.",
        examples=["reload"],
    )
    window: Time = Field(
        default=1_000_000_000,
        description="How long behind its end packets belong to it, or until the next event begins.",
        examples=["500 ms"],
    )

    @field_validator("run")
    @classmethod
    def _fields_are_known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            check_fields(word, PLACEHOLDERS)
        return words

    @field_validator("every")
    @classmethod
    def _every_is_a_time(cls, every: int | None) -> int | None:
        if every == 0:
            raise ValueError("this must be more than nothing")
        return every

    @property
    def called(self) -> str:
        """Its name in results."""
        return self.name or Path(self.run[0]).name


@dataclass(frozen=True)
class Due:
    """One time of an event."""

    at: int
    """In ns from the first packet that counts."""
    event: Event


def due(events: Sequence[Event], duration: int) -> list[Due]:
    """Each time of each event within `duration` ns, in their order."""
    return sorted(_due(events, duration), key=lambda one: one.at)


def _due(events: Sequence[Event], duration: int) -> Iterator[Due]:
    for event in events:
        times = range(event.at, duration, event.every) if event.every else [event.at]
        yield from (Due(at, event) for at in times)


def check_events(experiment: Experiment) -> None:
    """Raises `Misfit` for events that cannot happen, or that nothing could be said of."""
    duration, taps = experiment.traffic.duration, experiment.tap
    places = {DUT, GENERATOR, HOST, *(member.name for member in experiment.dut.members)}
    for number, event in enumerate(experiment.events):
        at: Any = ("events", number)
        if event.at >= duration:
            raise Misfit((*at, "at"), f"packets end after {format_time(duration)}: take an earlier "
                         "time, or more traffic.duration", [("traffic", "duration")])  # fmt: skip
        if event.where not in places:
            known = ", ".join(sorted(places))
            raise Misfit((*at, "where"), f"there is no {event.where!r}: known are {known}")
    require_fit(
        (
            len(due(experiment.events, duration)) > MOST_EVENTS,
            ("events",),
            f"these are more than {MOST_EVENTS:,}: repeat them less often",
            (),
        ),
        (
            experiment.events and experiment.snap is not None,
            ("events",),
            "these are joined with stamps, and the taps keep packets: leave them out",
            [("tap", "format"), ("evaluation", "match")],
        ),
        (
            experiment.events and taps.clock == HARDWARE,
            ("events",),
            (
                "cards stamp by a clock of their own, which does not say when these happened: take "
                "tap.clock: monotonic"
            ),
            [("tap", "clock")],
        ),
    )


MOST_NEIGHBOURS = 16


class OneNeighbour(Strict):
    """A kind of neighbour and its options, written ``{cpu: {cpus: [1], busy: 20}}``."""

    kind: str = Field(description="What it does.", examples=["cpu"])
    options: dict[str, Any] = Field(
        description="Where and how much.", examples=[{"cpus": [1], "busy": 20}]
    )

    _settings: BaseModel = PrivateAttr(default_factory=NoOptions)

    @property
    def settings(self) -> BaseModel:
        """Its options as an instance of its kind's `Options`."""
        return self._settings

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or len(data) != 1:
            raise ValueError(
                "a neighbour is one kind with its options, such as {cpu: {cpus: [1], busy: 20}}"
            )
        [(kind, options)] = data.items()
        if kind not in NEIGHBOURS:
            raise ValueError(
                f"there is no neighbour {kind!r}: {did_you_mean(str(kind), list(NEIGHBOURS))}"
            )
        if not isinstance(options, Mapping):
            raise ValueError(f"the options of {kind} are a mapping, such as {{cpus: [1]}}")
        return {"kind": kind, "options": dict(options)}

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> OneNeighbour:
        model = NEIGHBOURS[self.kind].Options
        with as_misfit((self.kind,), model):
            self._settings = model.model_validate(self.options)
        return self

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {self.kind: self.options}


Neighbours: TypeAlias = Annotated[
    dict[Annotated[str, Form(r"^[a-z][a-z0-9-]{0,11}$", name_words(12, "batch"))], OneNeighbour],
    Field(max_length=MOST_NEIGHBOURS),
    Written(
        "mapping from names to kinds with their options",
        schema={
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "object"},
                "minProperties": 1,
                "maxProperties": 1,
            },
            "maxProperties": MOST_NEIGHBOURS,
        },
    ),
]


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
