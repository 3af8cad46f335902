"""What the compiled module offers; a test compares this file with it."""

from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, final

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation.flows import Arrivals
from tailtap.analysis.evaluation.sources import Source
from tailtap.analysis.evaluation.values import Matching
from tailtap.lab.instruments.taps.links import TapLink

__all__ = [
    "TRACE_KINDS",
    "Cores",
    "audit_enabled",
    "both_ways",
    "check_key",
    "check_tap_key",
    "conclude",
    "crossings",
    "evaluate",
    "evaluate_piece",
    "evaluate_within",
    "flows_at",
    "forward",
    "generate",
    "has_transactions",
    "leaving",
    "load",
    "merge",
    "most_packets",
    "noise",
    "percentiles",
    "plan",
    "recording",
    "redirect",
    "sides",
    "stamp",
    "takes_programs",
    "tap",
    "trace",
    "trace_lacks",
    "transactions",
]

_Column: TypeAlias = NDArray[np.int64] | memoryview[int]
#: The bytes of 64-bit integers.
_Raw: TypeAlias = bytes
_Stays: TypeAlias = tuple[_Column, _Column, _Column, _Column]
_Address: TypeAlias = IPv4Address | IPv6Address
#: The knots of two clocks, and what these may be off by.
_Clocks: TypeAlias = tuple[Sequence[tuple[int, int]], int]
_Capture: TypeAlias = Path | Source
_Length: TypeAlias = tuple[Literal["ns", "packets"], int]

#: The bytes of the record `Matched`, the fields of `Columns`, and packets that came.
_Evaluation: TypeAlias = tuple[bytes, dict[str, Any], Arrivals | None]

class _Within(TypedDict):
    counts: bytes
    distribution: tuple[_Raw, _Raw]
    worst: tuple[_Raw, _Raw, _Raw, list[str]]
    lost_ns: _Raw

class _BothWays(TypedDict):
    ways: tuple[bytes, bytes]
    links: bool
    least_ns: tuple[int, int]

class _Crossings(TypedDict):
    key: str
    times: tuple[_Raw, _Raw]
    spans: list[tuple[int, int]]
    resolutions_ns: tuple[int, int]
    trailers: list[str | None]

class _Notes(TypedDict):
    records: int
    rest: int
    damaged_at: int | None
    lost: dict[int, int]

class _Joined(TypedDict):
    usual_ns: list[int]
    usual_left: int
    state: _Raw
    stall: _Raw
    offset: _Raw
    part_row: _Raw
    part_ns: _Raw
    stall_cpu: _Raw
    stall_start: _Raw
    stall_end: _Raw
    stall_row: _Raw
    stall_worst: _Raw

def evaluate(
    ingress: _Capture, egress: _Capture, matching: Matching, *, bucket_ns: int
) -> _Evaluation: ...
def plan(
    ingress: _Capture, egress: _Capture, matching: Matching, *, chunk_bytes: int
) -> list[bytes]: ...
def evaluate_piece(piece: bytes, *, stopped: Callable[[], bool] | None = None) -> bytes: ...
def evaluate_within(
    ingress: _Capture,
    egress: _Capture,
    matching: Matching,
    *,
    from_ns: int,
    until_ns: int,
    begins: tuple[int | None, int | None] | None = None,
) -> _Within:
    """What became of the packets between two times; the captures may still be written.

    They must have all packets until a matching window behind `until_ns`. Of a file that is a
    capture by itself only what stands behind the byte in `begins` is read. Packets that are equal
    to others within the window are left out. Raises `InputError`.
    """

def merge(partials: Sequence[bytes]) -> bytes: ...
def conclude(partial: bytes, *, bucket_ns: int) -> _Evaluation: ...
def crossings(earlier: _Capture, later: _Capture, matching: Matching) -> _Crossings: ...
def both_ways(ingress: _Capture, egress: _Capture, matching: Matching) -> _BothWays | None: ...
def sides(source: _Capture, matching: Matching) -> tuple[str, str]: ...
def transactions(
    first: _Capture,
    second: _Capture | None,
    matching: Matching,
    *,
    bucket_ns: int,
    from_last: bool,
) -> tuple[list[tuple[bytes, dict[str, Any]]], bytes]:
    """Of each kind the record `MatchedRequests` and `Columns`; the warnings of the captures."""

def has_transactions(
    first: _Capture, second: _Capture | None, matching: Matching, *, packets: int
) -> bool: ...
def percentiles(
    values: _Column, counts: _Column, ps: Sequence[float]
) -> list[tuple[float, int, int | None, int | None, int, bool]]: ...
def stamp(
    links: Sequence[tuple[TapLink, Path, str]],
    stamper: str,
    on_ready: Callable[[], object],
    *,
    duration_ns: int | None = None,
    count: int | None = None,
    cpu: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Stamp packets that interfaces receive until SIGINT or SIGTERM.

    A link comes with its stamp file and a method: "metadata" (an XDP program reads the stamp) or
    "messages" (a packet socket receives it). The stamper is "hardware", the network card, which is
    made to stamp every packet meanwhile; or "software", the kernel. Packets are absorbed with
    "metadata" alone, and never forwarded. Returns what `tailtap tap --json`
    prints for each link. Raises `InputError`, and `MachineError` for a card that cannot.
    """

def tap(
    links: Sequence[tuple[TapLink, Path]],
    on_ready: Callable[[], object],
    *,
    snap: int | None = None,
    marks: bool = False,
    key: str,
    clock: str,
    rotate: tuple[int | None, int | None],
    records: int | None = None,
    flush_ns: int | None = None,
    duration_ns: int | None = None,
    count: int | None = None,
    cpu: int | None = None,
    measure_cost: bool = False,
    filter: Sequence[tuple[int, int, int, int]] | None = None,
    filter_of_ip: Sequence[tuple[int, int, int, int]] | None = None,
    level: int = 0,
    budget: float | None = None,
    tell_ns: int | None = None,
    on_tell: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, dict[str, Any]]:
    """Stamp or capture packets on links, each into its file, until SIGINT or SIGTERM.

    With `snap` its bytes of every packet are written as pcap, or with `marks` looked at for hashes
    of keys; else stamps are written. `filter` is a program of libpcap's for frames of Ethernet,
    and `filter_of_ip` one for packets that begin with IP.
    One packet of ``2**level`` is stamped; with `budget`, a share of one core's time, fewer where
    the taps would take more. `on_tell` is called every `tell_ns` with what was counted, as
    ``tailtap tap --tell`` prints it. `rotate` is the largest
    size in bytes and the longest time in ns of a file. There is room for `records` packets in the
    ring of each link that does not say its own. `on_ready` is called once all
    taps are attached. Returns what `tailtap tap --json` prints for each link. Raises `InputError`
    and `MachineError`.
    """

def trace(
    path: Path,
    cpus: list[int],
    on_ready: Callable[[], object],
    *,
    senders: list[int] = ...,
    mode: str,
    floor_ns: int,
    served: list[int],
    networks: list[int] = ...,
    steered: bool = False,
    records: int | None = None,
    rotate_ns: int | None = None,
    on_file: Callable[[Path, dict[str, Any]], object] | None = None,
    flush_ns: int | None = None,
    duration_ns: int | None = None,
    cpu: int | None = None,
    budget: float | None = None,
    measure_cost: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """Record what the kernel does on `cpus` until SIGINT, SIGTERM or the duration; what it has.

    The waking of the threads `served` is recorded, and interrupts below `floor_ns` are added up.
    Where `networks` are given (the inodes of their namespaces), what softirqs spend on packets of
    others is recorded. Of `senders`, CPUs that tell others of packets, what holds them for long is
    recorded. `steered` says
    that packets come by function calls of other CPUs alone.
    Returns the file and what it has. With `rotate_ns` it goes on to the next file after that long,
    and calls `on_file` with each one but the last.
    There is room for so many records of each CPU, and `cpu` is that of the thread that writes them.
    Where the programs take more than `budget` of one core's time, nothing is traced for a part of
    the time: `paused_ns` of the answer, and `share` is what they took, pauses included.
    `kinds` of the answer has the records by kind, `lost` those that found no room by CPU, `missing`
    what this kernel does not tell, `substitutes` what stands in for it, `pids`, `irqs` and
    `functions` have names, and `hooks` has for each tracepoint how often its program ran, the time
    of that in ns if the cost is measured, and how many events were not seen. Raises `InputError`
    and `MachineError`.
    """

def load(
    kind: str,
    on_ready: Callable[[], object],
    *,
    cpu: int,
    name: str,
    nice: int = 0,
    amount: int = 0,
    at_once: int = 1,
    busy_ns: int = 0,
    period_ns: int = 0,
) -> dict[str, int]:
    """Load a CPU until SIGINT or SIGTERM, by a thread called `name`: what was `done`.

    `kind` is ``cpu`` (in ns of CPU time), ``cache`` (in lines of `amount` bytes), ``memory`` (in
    bytes, `amount` per second), ``interrupts`` (in wake-ups, `amount` per second) or ``packets``
    (in datagrams, `amount` per second, up to 64 `at_once`). The first two work for `busy_ns` of CPU
    time in each `period_ns`. Also tells the time that passed (`elapsed_ns`) and the CPU time
    (`cpu_ns`). Raises `InputError` and `MachineError`.
    """

class _Noise(TypedDict):
    cpu: int
    elapsed_ns: int
    reads: int
    least_ns: int
    gaps: list[tuple[int, int]]
    unkept: int
    gap_ns: int

def noise(
    cpus: Sequence[int],
    lasts_ns: int,
    above_ns: int,
    room: int,
    on_threads: Callable[[list[int]], object],
) -> list[_Noise]:
    """Read the clock on each of `cpus` in a loop, for `lasts_ns` or until SIGINT or SIGTERM.

    `gaps` are the two reads around each time that was longer than `above_ns`, `room` of them for
    each CPU; `unkept` found none, and `gap_ns` is the time in all. `on_threads` gets the ids of the
    threads, which begin to count when it returns. Raises `InputError` and `MachineError`.
    """

TRACE_KINDS: Mapping[str, int]
"""The kinds of a trace's records by their names: the list of bpf/trace_kinds.h."""

def audit_enabled() -> int:
    """0 when the kernel reports no system calls, 1 when it does, 2 when that is locked.

    Raises `OSError`.
    """

def takes_programs() -> bool:
    """Whether this kernel takes the programs of tap and tracer, as far as we may ask it."""

def trace_lacks(mode: str) -> tuple[list[str], list[str]]:
    """What a trace in this mode would lack on this kernel, and what would stand in for it.

    Raises `InputError` for a mode that does not exist, and `MachineError` when this kernel cannot
    be traced.
    """

def flows_at(capture: Path, times: _Column) -> list[str]:
    """The flows of a capture's packets at some times, which ascend, as an i64 column.

    Empty where there are no frames, or where packets of several flows have one stamp. Raises
    `InputError` when the file cannot be read.
    """

def leaving(stamps: Path, times: _Column) -> tuple[_Raw, _Raw]:
    """What a stamp file says of some times, which ascend, as i64 columns.

    How many of its packets left before each time, and on which core one left then; -1 where nobody
    says. Raises `InputError` when the file cannot be read.
    """

@final
class Cores:
    """What the kernel did on some cores: each nanosecond has one owner."""

    @staticmethod
    def read(
        trace: Path,
        cpus: list[int],
        ended_ns: int,
        *,
        serving: tuple[int, Sequence[int], Sequence[int], Sequence[Path]] | None = None,
    ) -> tuple[Cores, _Notes]:
        """Read the records of `cpus` from a trace that ended at `ended_ns`.

        `serving` is where softirqs serve packets: their vector, the cores on which they do, the
        cores on which threads serve (alone or as well), and the stamp files of the tap points
        behind what serves. Softirqs of that vector during which no packet left become those of
        others (the bit 1 of `more`) where they alone serve and there is such a file, and so do all
        of the vector on cores where they do not; idle cores on which threads alone serve have the
        bit 1 as well. Raises `InputError` when a file cannot be read; a trace that is cut off or
        damaged ends there, and the notes say so.
        """

    def on_clock(self, clock: list[tuple[int, int]]) -> Cores:
        """These cores at the times of another clock.

        `clock` has two moments at least, as the clock of the trace and as the other one shows them;
        both ascend, and times between them lie on straight lines.
        """

    def with_senders(self, senders: Cores, told: Sequence[int]) -> Cores:
        """These cores, with what held their senders while nobody had told them of packets.

        `senders` are cores that tell those of `told` of packets. Owners of theirs have the bit
        2^62 in `more`, and the number of their core from bit 44 on.
        """

    def with_guest(
        self, guest: Cores, seats: list[int | None], clock: list[tuple[int, int]]
    ) -> Cores:
        """These cores with those of a guest below them.

        `seats` has for each owner the core of the guest that it is, if it is one: while it has the
        time, what the guest did has it instead. Owners of the guest have the bit 2^63 in `more`.
        `clock` has two moments at least, as the guest's clock and as the host's shows them; both
        ascend, and times between them lie on straight lines.
        """

    @property
    def owners(self) -> list[tuple[int, int, int]]:
        """Who is in it, by number: the kind of record, which of this kind, and more."""

    def between(self, cpu: int, from_ns: int, until_ns: int) -> list[tuple[int, int, int]]:
        """What a core did: from, until, and the owner's number."""

    def starts(self, cpu: int, owners: list[int], from_ns: int, until_ns: int) -> bytes:
        """When stretches of some owners start on a core between two times, as an i64 column in ns.

        One that is under way at `from_ns` starts then.
        """

    def totals(self, from_ns: int, until_ns: int) -> list[int]:
        """The time of each owner on all cores, in ns."""

    def join(
        self, rows: list[int], causes: list[int], usual: _Stays, late: _Stays, median_ns: int
    ) -> _Joined:
        """The parts, states and stalls of late packets, in the order in which they left.

        `rows` has the row of each owner: 0 explains nothing, 1 serves; `causes` the number of each
        row's cause, which a stall is named by: the largest row of the largest cause. Packets are
        columns of ingress and egress stamps, cores (-1 for unknown), and packets that left
        meanwhile. States are those of `tailtap.analysis.causes.joined`; a stall of -1 is none.
        """

    def test(
        self,
        rows: list[int],
        tested: list[int],
        windows: _Stays,
        span: tuple[int, int],
        *,
        longer_than_ns: int = 0,
        shifts: int,
        seed: int,
    ) -> list[tuple[float, float, int, float]]:
        """Shift the stretches of each `tested` row within `span` against windows.

        The last column of `windows` is their excess in ns. Stretches count that lie in a time
        without service of more than `longer_than_ns`. Returns of each row the shares of the
        windows' excess that it covers, summed, the mean of the same over shifts, the number of
        shifts made, and the p-value.
        """

def check_tap_key(key: str) -> None:
    """Raise `InputError` for a key whose ids `tap` cannot stamp."""

def check_key(key: str) -> None:
    """Raise `InputError` for a key that packets of captures cannot be matched by."""

class _Sending(TypedDict):
    interface: str
    rate: int | None
    pattern: tuple[str, list[int]]
    sizes: Sequence[int]
    source: tuple[_Address, int]
    destination: tuple[_Address, int]
    source_ports: tuple[int, int]
    destination_ports: tuple[int, int]
    vlan: int | None
    time_to_live: int
    source_mac: bytes
    destination_mac: bytes
    replay: tuple[Path, bool] | None
    length: _Length | None
    warm_up: _Length
    pause_ns: int
    back_end: str
    bypass: bool

def generate(flows: Sequence[_Sending], *, cpus: Sequence[int] = ...) -> list[dict[str, Any]]:
    """Send flows (`rate` in pkt/s, `sizes` in bytes with FCS); generator.json of each.

    A thread on each of `cpus` sends its share of each flow through a queue of its own; without CPUs
    one thread sends all.

    A pattern is its name and its values; addresses and ports are the first one and how many. A
    replay is a capture, sent in place of packets of ours, and whether to write ids into it;
    without a rate it has its own pace, and without a length it is sent once.
    SIGINT and SIGTERM end it early; the reports then say so. Raises `InputError` and
    `MachineError`.
    """

def most_packets(pattern: tuple[str, list[int]], rate: int, duration_ns: int) -> int:
    """At least as many packets as `generate` sends in this time; exact unless chance decides.

    Raises `InputError` for a pattern that cannot be sent.
    """

def recording(path: Path, stamp_ids: bool) -> tuple[int, int, int, int]:
    """What a capture holds that is to be replayed.

    Its packets; how many of them have an id, with `stamp_ids` after it was written; the time after
    which it begins again in ns; and its largest frame in bytes, check sequence included. Raises
    `InputError` for a file that cannot be replayed.
    """

def redirect(
    input: str,
    output: str,
    on_ready: Callable[[], object],
    *,
    mode: str,
    both_ways: bool,
) -> None:
    """Redirect packets from input to output by an XDP program until SIGINT or SIGTERM.

    `mode` is ``native`` or ``generic``. Raises `InputError` and `MachineError`.
    """

def forward(
    input: str,
    output: str,
    on_ready: Callable[[], object],
    *,
    hold: set[int],
    hold_for_ns: int,
    drop: set[int],
    duplicate: set[int],
    limit: tuple[int, int] | None = None,
    cpu: int | None = None,
) -> dict[str, int]:
    """Pass packets from input to output until SIGINT or SIGTERM; hold, drop, duplicate some.

    `limit` is how many pass in a second, and how many may wait for their turn; more are dropped.
    Returns the counts that `tailtap forward --json` prints. Raises `InputError` and
    `MachineError`.
    """
