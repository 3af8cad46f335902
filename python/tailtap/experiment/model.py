"""The experiment file: what is measured, on what, how often.

The model is strict: an unknown key, a wrong type and a missing unit are errors. It knows the
kinds of platforms and forwarders from their registries, and each forwarder checks its own
options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from tailtap import forwarder, platform
from tailtap.experiment.document import did_you_mean
from tailtap.schema import Cpu, Strict, Time
from tailtap.traffic.model import Traffic
from tailtap.units import format_time


def _one_of(known: Callable[[], Mapping[str, object]], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known():
            raise ValueError(f"there is no {what} {value!r}: {did_you_mean(value, known())}")
        return value

    return AfterValidator(check)


class Dut(Strict):
    """The device under test: a platform with two ports, and what forwards between them."""

    platform: Annotated[str, _one_of(lambda: platform.PLATFORMS, "platform")] = "bare-metal"
    forwarder: Annotated[str, _one_of(lambda: forwarder.FORWARDERS, "forwarder")] = "tc-mirred"
    cpus: Annotated[tuple[Cpu, ...], Field(strict=False, min_length=1)] = (1,)
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("cpus")
    @classmethod
    def _sorted_without_duplicates(cls, cpus: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(cpus)) != len(cpus):
            raise ValueError(f"a CPU is named twice in {list(cpus)}")
        return tuple(sorted(cpus))


KEYS = ("auto", "moonsniff")
"""Keys that the lab's taps store: the packet's id and nothing else."""


class Evaluation(Strict):
    """How ingress and egress are matched; times in ns."""

    key: str = "auto"
    trim: Time = 0
    window: Time = 5_000_000_000

    @field_validator("key")
    @classmethod
    def _key_is_an_id(cls, key: str) -> str:
        if key not in KEYS:
            raise ValueError(
                f"there is no key {key!r} in a stamp file: {did_you_mean(key, KEYS)} (others are "
                "for captures of whole packets, see `tailtap evaluate --key`)"
            )
        return key

    @field_validator("window")
    @classmethod
    def _window_is_positive(cls, window: int) -> int:
        if window == 0:
            raise ValueError("the window must be longer than 0 s: no packet could match")
        return window


class Experiment(Strict):
    """One experiment file after reading: quantities are integers in base units."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    dut: Dut = Dut()
    traffic: Traffic
    evaluation: Evaluation = Evaluation()
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1

    @model_validator(mode="after")
    def _trim_leaves_something(self) -> Experiment:
        if self.evaluation.trim >= self.traffic.duration:
            raise ValueError(
                f"evaluation.trim of {format_time(self.evaluation.trim)} leaves nothing "
                f"of {format_time(self.traffic.duration)} of traffic"
            )
        return self

    def parameters(self) -> dict[str, Any]:
        """What one run does, for `run.json`: everything but the name, `vary` and `repeat`."""
        content = self.model_dump(mode="json", exclude={"name", "vary", "repeat"})
        if not platform.PLATFORMS[self.dut.platform].has_dut:
            content["dut"]["forwarder"] = None
            content["dut"]["options"] = {}
        return content
