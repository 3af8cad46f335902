"""`figures` of an experiment file: what is drawn of its runs, beside the report's own figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from tailtap.analysis.figures.kinds import KINDS, OPTIONS, Axis, Kind
from tailtap.analysis.figures.quantities import TIME, Quantity, parse_percentile
from tailtap.analysis.runs.text import as_words
from tailtap.analysis.verdict.requirement import Requirement, parse_requirement
from tailtap.base.document import Document, KeyPath, Misfit, dotted, load, reason
from tailtap.base.errors import InputError, InputErrors, did_you_mean
from tailtap.base.files import slugify
from tailtap.base.schema import Matching, Strict, Written, name_words, read_by

MOST = 200
"""Figures of one file: more are a mistake."""
IN_TIME = ("percentile", "max", "mean")
"""Requirements whose limit is a latency."""


def _as_along(value: object) -> object:
    return {"by": value} if isinstance(value, str | list) else value


def _as_list(value: object) -> object:
    """One value is a list of one."""
    return value if isinstance(value, list) else [value]


class Along(Strict):
    """Variables by which runs are told apart, and how their values are called."""

    by: Annotated[
        list[str],
        BeforeValidator(_as_list),
        Written("variable, or list of them", or_schema={"type": "string"}),
    ] = Field(
        min_length=1,
        description="The variable, as `vary` or `cases` has it, or a list of them.",
        examples=["dut.platform"],
    )
    order: Annotated[list[Any], Written("list of values")] = Field(
        default_factory=list,
        description="Values in the order in which they are shown; others follow.",
        examples=[["vm", "container"]],
    )
    names: Annotated[dict[str, str], Written("mapping from values to text")] = Field(
        default_factory=dict,
        description="What values are called in the figure.",
        examples=[{"container": "LXC"}],
    )

    def name(self, value: str) -> str:
        """What a value is called."""
        return self.names.get(value, value or "–")

    def place(self, values: Sequence[str]) -> tuple[int, ...]:
        """By what values are put in the order that is asked for."""
        order = [as_words(value) for value in self.order]
        return tuple(order.index(value) if value in order else len(order) for value in values)


_ALONG = Written(
    "variable, list of variables, or mapping",
    or_schema={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
)
One = Annotated[Along, BeforeValidator(_as_along), _ALONG]


class Scale(Strict):
    """One axis of a figure."""

    scale: Literal["linear", "log"] | None = Field(
        default=None, description="By default as it is usual for the kind.", examples=["linear"]
    )
    range: Annotated[
        list[str | int | float | None],
        Field(min_length=2, max_length=2),
        Written("list of two values"),
    ] = Field(
        default=[None, None],
        description="Where it begins and ends, with units where the quantity has one; null leaves "
        "an end to the data.",
        examples=[["0 us", "200 us"]],
    )

    def bounds(self, quantity: Quantity) -> tuple[float | None, float | None]:
        """Both ends in base units. Raises `InputError` for one that is no value of it."""
        low, high = (None if value is None else quantity.parse(str(value)) for value in self.range)
        return low, high

    def of(self, axis: Axis) -> Axis:
        """The axis as it is asked for. Raises `InputError` as `bounds` does."""
        low, high = self.bounds(axis.quantity)
        log = axis.log if self.scale is None else self.scale == "log"
        low = axis.low if low is None and log == axis.log else low
        return replace(axis, log=log, low=low, high=axis.high if high is None else high)


class Scales(Strict):
    """The axes of a figure."""

    x: Scale = Field(
        default_factory=Scale,
        description="The horizontal one.",
        examples=[{"range": ["90 %", None]}],
    )
    y: Scale = Field(
        default_factory=Scale,
        description="The vertical one.",
        examples=[{"scale": "linear"}],
    )


class Beside(Strict):
    """What others published of the same, drawn dashed beside it."""

    path: str | None = Field(
        default=None,
        description="A tree of published results, or what `tailtap import --into` wrote; with "
        "--figures-from from where `tailtap report` is typed. By default the runs "
        "imported into the folder of the results.",
        examples=["containerized-low-latency"],
    )
    name: str = Field(
        default="published",
        min_length=1,
        description="What it is called in the legend.",
        examples=["Wiedner and others"],
    )
    where: Annotated[
        dict[str, dict[str, Any]], Written("mapping from words of --runs to values")
    ] = Field(
        min_length=1,
        description="Which of its runs (words as of `tailtap report --runs`) belong to which "
        "values of our variables.",
        examples=[{"container/rt/optimized": {"dut.platform": "container"}}],
    )


class Figure(Strict):
    """One figure, or a table."""

    kind: Annotated[str, Written("kind", schema={"enum": list(KINDS)})] = Field(
        description="What is drawn; docs/howto/figures.md lists the kinds.",
        examples=["hdr"],
    )
    name: Annotated[str, Matching(r"^[a-z][a-z0-9-]{0,39}$", name_words(40, "figure-5"))] | None = (
        Field(
            default=None,
            description="What its files are called. By default asked- and its kind, with a number "
            "where there are several.",
            examples=["figure-5"],
        )
    )
    title: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="By default what the kind shows, and by what it is told apart.",
        examples=["Latency on three kernels"],
    )
    caption: str = Field(
        default="",
        max_length=2000,
        description="What stands below it in the report.",
        examples=["One minute at 10 kpkt/s."],
    )
    runs: dict[str, Any] = Field(
        default_factory=dict,
        description="Which runs: values of variables, of which a list stands for any.",
        examples=[{"traffic.rate": "10 kpkt/s"}],
    )
    panels: (
        Annotated[
            list[One],
            Field(min_length=1, max_length=2),
            BeforeValidator(_as_list),
            Written("variable, or list of two", or_schema={"type": "string"}),
        ]
        | None
    ) = Field(
        default=None,
        description="A variable with a panel for each value; of two, columns and rows.",
        examples=["dut.kernel", ["dut.kernel", "traffic.rate"]],
    )
    series: One | None = Field(
        default=None,
        description="The variable with a line for each value. Names of lines have what varies "
        "besides.",
        examples=[{"by": "dut.platform", "order": ["vm", "container"]}],
    )
    over: One | None = Field(
        default=None,
        description="The varied parameter on the horizontal axis.",
        examples=["traffic.rate"],
    )
    percentile: Annotated[str, read_by(parse_percentile)] | None = Field(
        default=None,
        description="Which percentile, or max, the default.",
        examples=["p99.9"],
    )
    counter: str | None = Field(
        default=None,
        description="Which counter: an event of `counters`, or a kind of interrupt or softirq, "
        "such as LOC or NET_RX softirq.",
        examples=["dTLB-load-misses"],
    )
    per: str | None = Field(
        default=None,
        description="What counters are told by: packet, the default, second, that of interrupts, "
        "run, or the name of another counter, of which they are a share.",
        examples=["second", "dTLB-loads"],
    )
    method: Literal["papers", "tailtap"] | None = Field(
        default=None,
        description="Whose tail models: the published method's, the default, or ours.",
        examples=["tailtap"],
    )
    sign: dict[str, list[str]] | None = Field(
        default=None,
        description="Columns with a check mark: the column's name, and VARIABLE=VALUE, of "
        "which any will do.",
        examples=[{"RT": ["dut.kernel=rt"]}],
    )
    repeats: Literal["all", "worst"] = Field(
        default="all",
        description="Whether all repeats are shown, the worst one strong, or the worst one alone.",
        examples=["worst"],
    )
    axes: Scales = Field(
        default_factory=Scales,
        description="Scales and ranges.",
        examples=[{"y": {"range": ["0 us", "200 us"]}}],
    )
    line: Annotated[
        list[str],
        BeforeValidator(_as_list),
        Written("requirement, or list of them", or_schema={"type": "string"}),
    ] = Field(
        default_factory=list,
        description="Requirements that are drawn as lines.",
        examples=["p99.9 < 1 ms"],
    )
    beside: Beside | None = Field(
        default=None,
        description="Published results beside ours: their curves, and a table of ratios. They are "
        "never judged.",
        examples=[{"path": "published", "where": {"vm": {"dut.platform": "vm"}}}],
    )

    @field_validator("kind")
    @classmethod
    def _kind_is_known(cls, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError(f"there is no kind of figure {kind!r}: {did_you_mean(kind, KINDS)}")
        return kind

    @model_validator(mode="after")
    def _options_are_of_the_kind(self) -> Figure:
        kind = self.made
        for key in OPTIONS:
            if getattr(self, key) is not None and key not in kind.options:
                raise Misfit((key,), f"a figure of the kind {self.kind} does not have this key")
        if self.kind == "counter" and self.counter is None:
            raise Misfit(("counter",), "this key is missing: name what is counted")
        return self

    @model_validator(mode="after")
    def _axes_fit(self) -> Figure:
        for name, scale, axis in (
            ("x", self.axes.x, self.made.x),
            ("y", self.axes.y, self.made.y),
        ):
            if name == "x" and self.over is not None:
                continue  # in the units of the varied parameter
            at: KeyPath = ("axes", name, "range")
            try:
                low, high = scale.bounds(axis.quantity)
            except InputError as error:
                example = axis.quantity.example
                raise Misfit(at, f"{error} (this axis takes values such as {example})") from error
            log = axis.log if scale.scale is None else scale.scale == "log"
            if low is not None and high is not None and low >= high:
                raise Misfit(at, "the axis ends before it begins")
            if log and low is not None and low <= 0:
                raise Misfit(at, "a logarithmic axis does not reach 0: write scale: linear")
        return self

    @model_validator(mode="after")
    def _lines_fit(self) -> Figure:
        for place, text in enumerate(self.line):
            try:
                wanted = parse_requirement(text)
            except InputError as error:
                raise Misfit(("line", place), str(error)) from error
            axes = (self.made.x.quantity, self.made.y.quantity)
            is_time = wanted.quantity in IN_TIME and TIME in axes
            if not is_time and not (wanted.quantity == "loss" and self.kind == "loss"):
                raise Misfit(
                    ("line", place),
                    f"'{text}' is no line in a figure of the kind {self.kind}: its axes show "
                    "something else",
                )
        return self

    @property
    def made(self) -> Kind:
        """Its kind."""
        return KINDS[self.kind]

    @property
    def heading(self) -> str:
        """What stands above it: what it is of and by what, as a page may have many of a kind."""
        own = f"{self.counter} per {self.per or 'packet'}" if self.counter else self.made.title
        told = dict.fromkeys(
            variable.rpartition(".")[2] for _, one in self.along for variable in one.by
        )
        return self.title or (f"{own} by {' and '.join(told)}" if told else own)

    @property
    def required(self) -> Sequence[Requirement]:
        """The requirements that are lines."""
        return [parse_requirement(text) for text in self.line]

    @property
    def along(self) -> Iterator[tuple[KeyPath, Along]]:
        """The variables that it names, and where."""
        for place, one in enumerate(self.panels or []):
            yield (("panels", place) if len(self.panels or []) > 1 else ("panels",)), one
        if self.series is not None:
            yield ("series",), self.series
        if self.over is not None:
            yield ("over",), self.over

    @property
    def named(self) -> Iterator[tuple[KeyPath, str, Sequence[str]]]:
        """Where it names a variable, the variable, and values of it that it names."""
        for at, one in self.along:
            values = [*(as_words(value) for value in one.order), *one.names]
            for variable in one.by:
                # Of several variables, a value may be of any.
                yield at, variable, values if len(one.by) == 1 else ()
        for variable, value in self.runs.items():
            yield (
                ("runs", variable),
                variable,
                [as_words(one) for one in (value if isinstance(value, list) else [value])],
            )
        for words, ours in (self.beside.where if self.beside else {}).items():
            for variable, value in ours.items():
                yield ("beside", "where", words, variable), variable, [as_words(value)]
        for column, marks in (self.sign or {}).items():
            for mark in marks:
                variable, _, value = mark.partition("=")
                yield ("sign", column), variable, [value]


def check_figures(
    figures: Sequence[Figure], values: Mapping[str, Sequence[str]], *, whole: bool = True
) -> None:
    """Raises `Misfit` for a figure of variables or values that the runs do not have.

    `values` has those of each variable. A value is not looked for unless the variable's are the
    `whole` of them.
    """
    taken: set[str] = set()
    for place, figure in enumerate(figures):
        if figure.name is not None and figure.name in taken:
            raise Misfit(("figures", place, "name"), f"{figure.name} is taken already")
        taken.add(figure.name or "")
        for at, variable, named in figure.named:
            path = ("figures", place, *at)
            if variable not in values:
                raise Misfit(
                    path, f"nothing varies by {variable!r}: {did_you_mean(variable, values)}"
                )
            unknown = [value for value in named if value not in values[variable]]
            if whole and unknown and values[variable]:
                raise Misfit(
                    path,
                    f"{unknown[0]!r} is no value of {variable}: "
                    f"{did_you_mean(unknown[0], values[variable])}",
                )


def file_names(figures: Sequence[Figure]) -> list[str]:
    """What the files of each figure are called, each name once."""
    given = {figure.name for figure in figures}
    found: list[str] = []
    for figure in figures:
        name, number = figure.name or slugify(f"asked-{figure.kind}"), 1
        while figure.name is None and (name in found or name in given):
            number += 1
            name = f"asked-{figure.kind}-{number}"
        found.append(name)
    return found


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
        figures = TypeAdapter(list[Figure]).validate_python(written)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InputErrors(_sentences(document, details)) from error
    try:
        check_figures(figures, values, whole=False)
    except Misfit as misfit:
        raise InputError(_at(document, misfit.at, str(misfit))) from misfit
    return figures


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
        found.append(_at(document, path, said))
    return list(dict.fromkeys(found))


def _keys(path: KeyPath) -> list[str]:
    """The keys that may stand where the last of `path` does."""
    above = next((part for part in reversed(path[:-1]) if part in _MODELS), None)
    return list((Figure if above is None else _MODELS[str(above)]).model_fields)


def _at(document: Document, path: KeyPath, said: str) -> str:
    return f"{document.place(path)}: {dotted(path)}: {said}"
