"""The experiment file: what is measured, on what, how often.

The model is strict: an unknown key, a wrong type and a missing unit are errors. It knows the
kinds of platforms and forwarders from their registries, and each forwarder checks its own
options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from tailtap import forwarder, platform
from tailtap.capture.model import Taps
from tailtap.experiment.document import Misfit, did_you_mean
from tailtap.platform import Wanted
from tailtap.platform.boot import check_boot, parameter_names
from tailtap.platform.kernel import check_kernel
from tailtap.schema import Cpu, Ports, Size, Strict, Time, as_value_error
from tailtap.topology.lab import Cables
from tailtap.traffic.model import Traffic
from tailtap.units import format_time
from tailtap.verdict.requirement import parse_requirements


def _one_of(known: Callable[[], Mapping[str, object]], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known():
            raise ValueError(f"there is no {what} {value!r}: {did_you_mean(value, known())}")
        return value

    return AfterValidator(check)


OPEN = ("memory", "cgroup", "kernel", "root", "boot", "huge_pages", "ports")
"""Keys of `dut` that have a meaning on some platforms only."""


class Dut(Strict):
    """The device under test: a platform with two ports, and what forwards between them."""

    platform: Annotated[str, _one_of(lambda: platform.PLATFORMS, "platform")] = "bare-metal"
    forwarder: Annotated[str, _one_of(lambda: forwarder.FORWARDERS, "forwarder")] = "tc-mirred"
    cpus: Annotated[tuple[Cpu, ...], Field(strict=False, min_length=1)] = (1,)
    memory: Size | None = None
    cgroup: Literal[1, 2] | None = None
    kernel: Annotated[str, AfterValidator(check_kernel)] | None = None
    root: Literal["host", "debian"] | None = None
    boot: Annotated[str, AfterValidator(check_boot)] = ""
    huge_pages: bool = False
    ports: Ports | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _forwarder_with_options(cls, data: Any) -> Any:
        """``forwarder: {suricata: {rules: none}}`` is the forwarder's name and its options."""
        named = data.get("forwarder") if isinstance(data, Mapping) else None
        if not isinstance(named, Mapping):
            return data
        if data.get("options"):
            raise ValueError(
                "forwarder has its options with it already: leave out options, or the other ones"
            )
        if len(named) != 1:
            raise ValueError(
                "forwarder is one name, or one name with its options, such as "
                "{suricata: {rules: none}}"
            )
        [(name, options)] = named.items()
        if not isinstance(options, Mapping):
            raise ValueError(f"the options of forwarder {name} are a mapping, not {options!r}")
        return {**data, "forwarder": name, "options": dict(options)}

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


def _is_requirement(text: str) -> str:
    with as_value_error():
        parse_requirements([text])
    return text


class Experiment(Strict):
    """One experiment file after reading: quantities are integers in base units."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    dut: Dut = Dut()
    traffic: Traffic
    tap: Taps = Taps()
    evaluation: Evaluation = Evaluation()
    differs: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """In which ways this is not the experiment that it follows, one sentence each."""
    cases: list[dict[str, Any]] = Field(default_factory=list)
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1
    scales: dict[str, dict[str, Any]] = Field(default_factory=dict)
    counters: bool = False
    require: list[Annotated[str, AfterValidator(_is_requirement)]] = Field(default_factory=list)
    """What all runs must hold, as `verdict.requirement` reads it."""

    @model_validator(mode="after")
    def _trim_leaves_something(self) -> Experiment:
        if self.evaluation.trim >= self.traffic.duration:
            raise Misfit(
                ("evaluation", "trim"),
                f"a trim of {format_time(self.evaluation.trim)} leaves nothing of "
                f"{format_time(self.traffic.duration)} of traffic",
                [("traffic",)],
            )
        return self

    @model_validator(mode="after")
    def _platform_uses_what_is_asked(self) -> Experiment:
        unused = [name for name in OPEN if getattr(self.dut, name) and name not in self._used()]
        # Where there is no DuT, nothing of it has a meaning, and nothing is left undone.
        if unused and platform.PLATFORMS[self.dut.platform].has_dut:
            users = [name for name, kind in platform.PLATFORMS.items() if unused[0] in kind.uses]
            remedy = ""
            if self._varies("dut.platform") or self._varies(f"dut.{unused[0]}"):
                remedy = " (keep them apart with cases, or leave the combination out with exclude)"
            raise Misfit(
                ("dut", unused[0]),
                f"this means nothing on platform {self.dut.platform}, "
                f"but on {', '.join(users)}{remedy}",
                [("dut", "platform")],
            )
        return self

    @model_validator(mode="after")
    def _both_ends_of_cables(self) -> Experiment:
        dut, tap = self.dut.ports, self.tap.ports
        if (dut is None) != (tap is None):
            known, other = ("tap", "dut") if dut is None else ("dut", "tap")
            raise Misfit(
                (known, "ports"),
                f"they are at one end of two cables: say with {other}.ports what is at the other",
                [(other, "ports")],
            )
        if dut is not None and tap is not None and len({*dut, *tap}) < 4:
            raise Misfit(
                ("tap", "ports"),
                "dut.ports and tap.ports are four different interfaces",
                [("dut", "ports")],
            )
        return self

    def wanted(self, *, both_ways: bool = False) -> Wanted:
        """What this asks of the platform."""
        asked = {name: getattr(self.dut, name) for name in OPEN if name != "ports"}
        # A run that is to be without another's parameters is not made with them.
        varied = [*self.vary.get("dut.boot", ()), *(case.get("dut.boot") for case in self.cases)]
        others = parameter_names([text for text in varied if isinstance(text, str)])
        without = others - parameter_names([self.dut.boot])
        return Wanted(self.dut.cpus, **asked, boot_without=without, both_ways=both_ways)

    def cables(self) -> Cables | None:
        """The cables that the DuT hangs on; None for links of the lab."""
        if self.dut.ports is None or self.tap.ports is None or "ports" not in self._used():
            return None
        return Cables(self.dut.ports, self.tap.ports)

    def _varies(self, key: str) -> bool:
        return key in self.vary or any(key in case for case in self.cases)

    def _used(self) -> Set[str]:
        return platform.PLATFORMS[self.dut.platform].uses

    def parameters(self) -> dict[str, Any]:
        """What one run does, for `run.json`, without what makes several runs of one file."""
        about = {"name", "differs", "cases", "vary", "exclude", "repeat", "scales", "require"}
        content = self.model_dump(mode="json", exclude=about)
        for name in OPEN:
            if name not in self._used():
                content["dut"][name] = None
        if "ports" not in self._used():
            content["tap"]["ports"] = None
        if not platform.PLATFORMS[self.dut.platform].has_dut:
            content["dut"]["forwarder"] = None
            content["dut"]["options"] = {}
        return content
