"""How a pair of captures is evaluated: what is asked, what a run says, what an evaluation kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from tailtap.analysis.evaluation.clocks import Clocks, require_shorter
from tailtap.analysis.evaluation.values import Matching
from tailtap.base.errors import InputError, WrongValue
from tailtap.records.evaluation import Nanoseconds, Options, Stamps

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.model import Evaluation
    from tailtap.records.run import EvaluationSettings

SECOND_NS = 1_000_000_000
#: What `nanoseconds` can be, and whether it is of ingress and of egress.
NANOSECONDS = {"ingress": (True, False), "egress": (False, True), "both": (True, True)}
#: What the parameters of a run say of them, by the names that these have there.
OF_A_RUN = {"key": "key", "trim": "trim_ns", "window": "window_ns"}


@dataclass(frozen=True)
class Settings:
    """How a pair of captures is evaluated; see `evaluate`, whose parameters these are."""

    key: str = "auto"
    trim_ns: int = 0
    window_ns: int = 5 * SECOND_NS
    worst: int = 5000
    bucket_ns: int = 100
    format: str | None = None
    clocks: Clocks | None = None
    nanoseconds: Nanoseconds | None = None
    losses: bool = True
    """Whether lost packets are named, which reads the capture before the device again."""
    key_after: str | None = None
    stamps: Stamps | None = None
    flows: bool = False
    """Whether losses and latencies are told for each flow, which keeps 24 bytes of each packet."""
    throughout: bool = False
    """Whether both captures ran all the time, so that what does not leave at their ends is lost."""

    def __post_init__(self) -> None:
        """Raise `InputError` for numbers and words that mean nothing."""
        sides_of(self.nanoseconds)
        if self.key_after is not None and self.key == "auto":
            raise InputError(
                f"--key-after {self.key_after} says where a number is behind the "
                "device: say by --key where the same number is before it"
            )
        source_of(self.stamps)
        if self.window_ns <= 0 or self.bucket_ns <= 0 or self.trim_ns < 0 or self.worst < 0:
            raise InputError("window and bucket must be above zero, trim and worst not below it")
        if self.clocks is not None:
            require_shorter(self.clocks, self.window_ns)

    @property
    def matching(self) -> Matching:
        """How `tailtap._core` matches and counts."""
        clocks = self.clocks
        return {
            "key": None if self.key == "auto" else self.key,
            "key_after": self.key_after,
            "trim_ns": self.trim_ns,
            "window_ns": self.window_ns,
            "worst": self.worst,
            "format": self.format,
            "clocks": None if clocks is None else (clocks.knots, clocks.within_ns),
            "nanoseconds": sides_of(self.nanoseconds),
            "losses": self.losses,
            "flows": self.flows,
            "stamps": self.stamps,
            "throughout": self.throughout,
        }

    @property
    def options(self) -> Options:
        """What an evaluation keeps of them."""
        return Options(**{name: getattr(self, name) for name in Options.__struct_fields__})

    @property
    def parameters(self) -> dict[str, Any]:
        """What the parameters of a run keep of them."""
        return {theirs: getattr(self, ours) for theirs, ours in OF_A_RUN.items()}


def of_run(asked: EvaluationSettings | None, **changes: Any) -> Settings:
    """Those that the parameters of a run ask for, but for `changes`: fields of `Settings`.

    The taps of a run stamp from before its first packet until after its last.
    """
    own = {ours: getattr(asked, theirs) for theirs, ours in OF_A_RUN.items()} if asked else {}
    return Settings(**{"throughout": True} | own | changes)


def of_evaluation(found: Evaluation, **changes: Any) -> Settings:
    """Those that an evaluation was made with, but for `changes`: fields of `Settings`.

    How its clocks were to each other is not among them.
    """
    formats = {side.format for side in found.inputs.both}
    own: dict[str, Any] = msgspec.structs.asdict(found.options)
    own |= {"key": found.key, "key_after": found.key_after}
    own |= {"format": formats.pop() if len(formats) == 1 else None}
    return Settings(**own | changes)


def sides_of(nanoseconds: str | None) -> tuple[bool, bool]:
    """Whether `nanoseconds` is of ingress and of egress. Raises `InputError` for another word."""
    if nanoseconds is None:
        return False, False
    if nanoseconds not in NANOSECONDS:
        raise WrongValue("--nanoseconds", nanoseconds, f"give {', '.join(NANOSECONDS)}")
    return NANOSECONDS[nanoseconds]


def source_of(stamps: str | None) -> Stamps | None:
    """Where stamps are taken from. Raises `InputError` for a word that names no source."""
    if stamps is None or stamps in get_args(Stamps):
        return cast("Stamps | None", stamps)
    raise WrongValue("--stamps", stamps, f"give {' or '.join(get_args(Stamps))}")
