"""How packets follow each other: one class for each pattern, one row in `PATTERNS`.

In an experiment file a pattern is its name, or a mapping of its kind and its values. On the command
line it is one text, ``burst:packets=32``; the file accepts that too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, TypeAdapter, ValidationError

from tailtap.base.document import explain
from tailtap.base.errors import InputError, WrongValue, shown
from tailtap.base.schema import Rate, Strict, Time, Written
from tailtap.base.units import format_rate, format_time

Values: TypeAlias = tuple[str, list[int]]
"""A pattern as `tailtap._core` takes it: its name and its values."""


UNITS: Mapping[str, str] = {"on_time": " ns", "off_time": " ns", "over": " ns", "to": " pkt/s"}
"""Those of the values of patterns that have one."""


class _Pattern(Strict):
    kind: str

    @property
    def own(self) -> dict[str, int]:
        return {key: value for key, value in self if key != "kind" and value is not None}

    def values(self, duration: int | None) -> Values:
        """The pattern for packets that are sent for `duration` ns (None: for a count)."""
        return self.kind, list(self.own.values())

    def text(self) -> str:
        parts = ",".join(f"{key}={value}{UNITS.get(key, '')}" for key, value in self.own.items())
        return f"{self.kind}:{parts}" if parts else self.kind


class Constant(_Pattern):
    """Equal gaps."""

    kind: Literal["constant"] = Field(
        default="constant", description="Packets at equal distances.", examples=["constant"]
    )


class Burst(_Pattern):
    """Several packets at once, at the same mean rate."""

    kind: Literal["burst"] = Field(
        description="Several packets at once, at the same mean rate.", examples=["burst"]
    )
    packets: Annotated[int, Field(ge=1, le=2**32)] = Field(
        description="How many packets a burst has.", examples=[32]
    )


class Poisson(_Pattern):
    """Independent gaps of an exponential distribution; the same seed gives the same gaps."""

    kind: Literal["poisson"] = Field(
        description="Independent gaps of an exponential distribution.", examples=["poisson"]
    )
    seed: Annotated[int, Field(ge=0, lt=2**64)] = Field(
        default=1, description="The same seed gives the same gaps.", examples=[7]
    )


class OnOff(_Pattern):
    """The rate for `on_time` ns, silence for `off_time` ns, in turn."""

    # Not `on` and `off`: to YAML, these are booleans.

    kind: Literal["on-off"] = Field(
        description="Packets at traffic.rate, then silence, in turn.", examples=["on-off"]
    )
    on_time: Time = Field(description="How long packets are sent.", examples=["10 ms"])
    off_time: Time = Field(description="How long the silence is.", examples=["40 ms"])


class Ramp(_Pattern):
    """A rate that changes evenly to `to` pkt/s over `over` ns, by default the whole duration."""

    kind: Literal["ramp"] = Field(
        description="A rate that changes evenly, beginning with traffic.rate.", examples=["ramp"]
    )
    to: Rate = Field(description="The rate at its end.", examples=["40 kpkt/s"])
    over: Time | None = Field(
        default=None,
        description="How long it takes. The whole duration is the default.",
        examples=["5 s"],
    )

    def values(self, duration: int | None) -> Values:
        """The pattern for packets that are sent for `duration` ns (None: for a count).

        Raises `InputError` when neither says how long the ramp takes.
        """
        over = duration if self.over is None else self.over
        if over is None:
            raise InputError(
                "a ramp over a number of packets needs its time: --pattern 'ramp:to=…,over=10 s'"
            )
        return self.kind, [self.to, over]


PATTERNS: Mapping[str, type[Constant | Burst | Poisson | OnOff | Ramp]] = {
    "constant": Constant,
    "burst": Burst,
    "poisson": Poisson,
    "on-off": OnOff,
    "ramp": Ramp,
}
"""Every pattern by its name."""


def _from_text(value: object) -> object:
    """The mapping for ``kind:key=value,…``; anything else unchanged."""
    if not isinstance(value, str):
        return value
    kind, _, rest = value.partition(":")
    content: dict[str, Any] = {"kind": kind.strip()}
    for part in rest.split(",") if rest.strip() else ():
        key, equals, text = (word.strip() for word in part.partition("="))
        if not equals:
            raise ValueError(f"{part.strip()!r} in {value!r} should be key=value")
        content[key] = int(text) if re.fullmatch("[0-9]{1,18}", text) else text
    return content


def _known_kind(value: object) -> object:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    if not isinstance(kind, str) or kind not in PATTERNS:
        raise ValueError(
            f"there is no pattern {shown(kind)}: known: {', '.join(PATTERNS)}, alone or as "
            "{kind: burst, packets: 32}"
        )
    return value


Pattern = Annotated[
    Annotated[Constant | Burst | Poisson | OnOff | Ramp, Discriminator("kind")],
    BeforeValidator(_known_kind),
    BeforeValidator(_from_text),
    Written(
        "name, text or mapping",
        lambda pattern: pattern.text(),
        or_schema={"type": "string", "pattern": rf"^\s*({'|'.join(PATTERNS)})\s*(:.*)?$"},
    ),
]
"""A pattern in an experiment file."""


def parse_pattern(text: str) -> Constant | Burst | Poisson | OnOff | Ramp:
    """The pattern of an option such as ``burst:packets=32``. Raises `InputError`."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(Pattern)
        pattern: Constant | Burst | Poisson | OnOff | Ramp = adapter.validate_python(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][-1]}: " if first["loc"] else ""
        told = explain(first, first["loc"], lambda path: [*PATTERNS[str(path[0])].model_fields])
        raise WrongValue("--pattern", text, f"{where}{told}") from error
    return pattern


def describe(content: Mapping[str, Any]) -> str:
    """A stored pattern as text: ``burst, packets 32``."""
    show = {"on_time": format_time, "off_time": format_time, "over": format_time, "to": format_rate}
    values = {key: value for key, value in content.items() if key != "kind" and value is not None}
    parts = [f"{key} {show.get(key, str)(value)}" for key, value in values.items()]
    return ", ".join([str(content["kind"]), *parts])
