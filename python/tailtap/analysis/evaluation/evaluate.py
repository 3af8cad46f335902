"""`evaluate`: the library function behind `tailtap evaluate`, and its settings.

Both directions of two captures are told apart, evaluated each by itself, and never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from tailtap import _core
from tailtap.analysis.evaluation.clocks import Clocks, aligned, known, require_shorter, within_of
from tailtap.analysis.evaluation.flows import Arrivals, with_arrivals
from tailtap.analysis.evaluation.model import SIDES, Evaluation
from tailtap.analysis.evaluation.sources import Path_, Source, Sources, filtered_pair, two_sides
from tailtap.analysis.evaluation.values import NO_LOSSES, Matching
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.units import format_time
from tailtap.records.evaluation import Matched, Nanoseconds, Options, Sides, Stamps
from tailtap.records.record import Notice

if TYPE_CHECKING:
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


Direction = Literal["there", "back", "both"]
"""What can be asked for; ``both`` does not look for directions and takes all packets as one."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
Pair = tuple[Source, Source]
"""A side before the device, and one behind it."""
Run = Callable[[Settings, Source, Source], Evaluation]
"""Evaluates a pair, as `evaluate.evaluate_by` does."""


def evaluate_directions(
    run: Run,
    settings: Settings,
    ingress: Source,
    egress: Source,
    *,
    direction: Direction | None = None,
    back: Pair | None = None,
) -> Evaluation:
    """Evaluate two captures by `run`; where they hold both directions, each by itself.

    The way there is the result, and the way back its `back`; or one of them, by `direction`. By
    `back`, captures of packets that went the other way, two clocks are aligned. Without it, and
    where `settings` do not say how the clocks are, the packets of both directions align them if
    they show that the clocks differ.

    Raises `InputError` for captures that cannot be evaluated, and for those that have one direction
    only where `direction` asks for the way back.
    """
    if direction is not None and direction not in DIRECTIONS:
        raise WrongValue("--direction", direction, f"give {', '.join(DIRECTIONS)}")
    found = None if direction == "both" else _core.both_ways(ingress, egress, settings.matching)
    if found is None:
        if direction == "back":
            raise InputError(
                f"--direction back: no packets go both ways in {ingress.name} and {egress.name}"
            )
        if back is not None:
            clocks = _aligned((ingress, egress), _one_way(back, settings), settings)
            settings = replace(settings, clocks=clocks)
        return run(settings, ingress, egress)
    before, after = found["ways"]
    forth = (ingress.going(before, back=False), egress.going(after, back=False))
    other = (ingress.going(before, back=True), egress.going(after, back=True))
    told = "both captures hold both directions, which are evaluated apart"
    theirs = settings
    if found["links"]:
        other = (other[1], other[0])
        theirs = _exchanged(settings)
        differ = settings.clocks is None and min(found["least_ns"]) < 0
        if back is not None or differ:
            by = other if back is None else _one_way(back, settings)
            settings = replace(
                settings, clocks=_aligned(forth, by, settings, found_within=back is None)
            )
            if direction != "there":
                theirs = replace(theirs, clocks=_aligned(other, forth, theirs, found_within=True))
        if differ and back is None:
            told += "; their clocks differ, and were aligned by the packets of both"
    else:
        told += ": there is where the first packet between two ends went"
    if direction == "back":
        return _telling(run(theirs, *other), told)
    there = _telling(run(settings, *forth), told)
    if direction == "there":
        return there
    try:
        return replace(there, back=run(theirs, *other))
    except InputError as error:
        return _telling(there, f"the way back cannot be evaluated: {error}")


def _one_way(back: Pair, settings: Settings) -> Pair:
    """Those that went from the first to the second capture, where these hold both directions."""
    found = _core.both_ways(*back, _exchanged(settings).matching)
    if found is None or not found["links"]:
        return back
    before, after = found["ways"]
    return back[0].going(before, back=False), back[1].going(after, back=False)


def _exchanged(settings: Settings) -> Settings:
    """The same for captures that are exchanged. Only clocks known by an interval can be."""
    exchanged: dict[Nanoseconds | None, Nanoseconds] = {"ingress": "egress", "egress": "ingress"}
    nanoseconds = exchanged.get(settings.nanoseconds, settings.nanoseconds)
    clocks = settings.clocks
    if clocks is not None:
        [(least_ns, most_ns)] = clocks.record.ahead_ns
        clocks = known(-most_ns, -least_ns)
    settings = replace(settings, nanoseconds=nanoseconds, clocks=clocks)
    if settings.key_after is None:
        return settings
    return replace(settings, key=settings.key_after, key_after=settings.key)


def _aligned(pair: Pair, back: Pair, settings: Settings, *, found_within: bool = False) -> Clocks:
    return aligned(
        *pair,
        back,
        key=settings.key,
        format=settings.format,
        nanoseconds=sides_of(settings.nanoseconds),
        key_after=settings.key_after,
        stamps=settings.stamps,
        found_within=found_within,
    )


def _telling(found: Evaluation, text: str) -> Evaluation:
    return replace(found, warnings=[*found.warnings, Notice("both-directions", text)])


#: Fewer matched packets than this do not support the 99.9th percentile.
FEW_PACKETS = 10_000
#: A resolution of the stamps below this share of the mean latency, and below a microsecond, is
#: stored and shown, and no warning.
FINE = 0.01
MICROSECOND_NS = 1_000


def evaluate(
    ingress: Path_ | Source,
    egress: Path_ | Source | None = None,
    *,
    key: str = "auto",
    trim_ns: int = 0,
    window_ns: int = 5 * SECOND_NS,
    worst: int = 5000,
    bucket_ns: int = 100,
    format: str | None = None,
    clocks: Clocks | None = None,
    nanoseconds: Nanoseconds | None = None,
    key_after: str | None = None,
    stamps: Stamps | None = None,
    throughout: bool = False,
    direction: Direction | None = None,
    flows: bool = False,
    filter: str | None = None,
    filter_after: str | None = None,
) -> Evaluation:
    """Match the packets of two captures and compute exact statistics of their latency.

    `ingress` and `egress` are capture files from before and after the device under test: pcap,
    pcapng, ERF, mscap or stamp files, plain or compressed. `key` says what packets are matched by:
    ``auto`` or one of those in docs/reference/captures.md, such as ``packet``; where a number
    stands at another place behind the device, `key_after` says where. Packets that left the device
    within `trim_ns` of the first one are left out; a packet must leave within `window_ns`. The
    `worst` largest latencies are kept with their stamps; gaps are counted in buckets of
    `bucket_ns`, which is also the width of latency histograms unless asked otherwise. `format`
    names the format of both files when it cannot be told by content.

    `clocks` says how the clock of `egress` is to that of `ingress` where these are two: see
    `evaluation.clocks.known` and `aligned`. All times of the result are those of the clock before
    the device, and every latency is known to ± `Evaluation.within_ns`. A packet is non-causal only
    if it is that for any of the clocks' differences, and may be in the device for a window by any.

    `nanoseconds` names the captures (``ingress``, ``egress``, ``both``) whose stamps are
    nanoseconds though the file says that they are microseconds. Where stamps come in steps of
    more than 1 ns, by the file or by what they show, a latency may be off by a step to either side,
    which is part of `Evaluation.within_ns`. Equal stamps are a pair.

    `stamps` says where the stamps are taken from: the ``record`` of each packet, or the ``trailer``
    that a switch put behind it, in whichever capture has trailers. By default trailers count where
    all of the first packets of both captures have them.

    With `flows` the evaluation has losses and latencies of each flow, by what its packets are
    before the device: of the first 16,384 flows, and of all others together.

    Only packets of which `filter` is true are taken, in libpcap's words: ``udp port 53``. Where the
    device changes what it names, `filter_after` says which packets of `egress` are taken; all for
    an empty text.

    Loss is that of the time which both captures cover. `throughout` says that both ran all the
    time, so that what came last and did not leave is lost, too.

    A folder, or a pattern of files, is one capture whose files follow each other in time; ``-`` and
    pipes are read as well. Without `egress`, both sides are looked for in `ingress`. Where both
    captures hold both directions, the way there is evaluated, and the way back is its `back`;
    `direction` asks for one of them (``there``, ``back``), or for all packets as one (``both``).

    Raises `InputError` when the captures cannot be read or have no packet in common. Damage
    further into a capture is a warning: what can be read is evaluated, and the rest is counted.
    """
    settings = Settings(
        key,
        trim_ns,
        window_ns,
        worst,
        bucket_ns,
        format,
        clocks,
        nanoseconds,
        key_after=key_after,
        stamps=stamps,
        flows=flows,
        throughout=throughout,
    )
    with Sources() as sources:
        if egress is None:
            [both] = sources.open([ingress])
            [both] = filtered_pair(both, None, filter, filter_after)
            settings = replace(settings, nanoseconds=nanoseconds and "both")
            one, other = two_sides(both, settings.matching)
        else:
            one, other = sources.open([ingress, egress])
            one, other = filtered_pair(one, other, filter, filter_after)
        return evaluate_directions(evaluate_by, settings, one, other, direction=direction)


def evaluate_by(settings: Settings, ingress: Path_ | Source, egress: Path_ | Source) -> Evaluation:
    """One direction of two captures, with settings that are made already."""
    one, other = (side if isinstance(side, Source) else Path(side) for side in (ingress, egress))
    return concluded(
        *_core.evaluate(one, other, settings.matching, bucket_ns=settings.bucket_ns), settings
    )


def concluded(
    record: bytes, columns: Mapping[str, Any], arrivals: Arrivals | None, settings: Settings
) -> Evaluation:
    """The evaluation that `tailtap._core` gave: a `Matched`, `Columns`, and packets that came."""
    matched = msgspec.json.decode(record, type=Matched)
    evaluation = evaluation_of(matched, columns, settings)
    if arrivals is None:
        return evaluation
    return with_arrivals(evaluation, *arrivals, by_flow=settings.flows)


def evaluation_of(
    matched: Matched,
    columns: Mapping[str, Any],
    settings: Settings,
    matched_what: str = "packets were matched",
) -> Evaluation:
    """The evaluation of what was matched, with what is doubtful of it."""
    warnings = list(matched.warnings)
    if settings.clocks is not None:
        within = format_time(settings.clocks.within_ns)
        warnings.append(
            Notice(
                "two-clocks",
                f"the captures are of two clocks: every latency may be off by {within} to either "
                "side, which all bounds include",
            )
        )
    mean = matched.mean or 0.0
    warnings += _about_resolution(matched.inputs, mean)
    if matched.counts.matched < FEW_PACKETS:
        warnings.append(
            Notice(
                "few-packets",
                f"only {matched.counts.matched:,} {matched_what}: the 99.9th percentile needs at "
                f"least {FEW_PACKETS:,} to have ten above it",
            )
        )
    return Evaluation(
        key=matched.key,
        key_after=matched.key_after,
        key_reason=matched.key_reason,
        counts=matched.counts,
        device=matched.device,
        mean=mean,
        columns=({"losses": NO_LOSSES} | dict(columns)).__getitem__,
        inputs=matched.inputs,
        options=settings.options,
        warnings=warnings,
        clocks=None if settings.clocks is None else settings.clocks.record,
    )


def _about_resolution(inputs: Sides, mean: float) -> list[Notice]:
    step = within_of(None, inputs).resolution_ns
    if not step or step < min(MICROSECOND_NS, FINE * mean):
        return []
    how = " and ".join(
        f"{format_time(side.resolution_ns)} ({name})"
        for name, side in zip(SIDES, inputs.both, strict=True)
    )
    return [
        Notice(
            "stamp-resolution",
            f"the stamps come in steps of {how}: every latency may be off by {format_time(step)} "
            "to either side, which all bounds include",
        )
    ]
