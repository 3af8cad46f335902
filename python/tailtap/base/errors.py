"""The errors that a user can meet, each with the exit status of the command contract.

An error is a value: `what` happened, at which `place`, which `remedy` helps, and what its class
adds. Its text is made of these once and never read back: who must tell errors apart asks for the
class, and who must say something else takes the fields. What a message says of a word that is not
known is `did_you_mean`.

What a machine can do is looked at beforehand: each thing is a `Check`, and `Findings` has the
errors that would be.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, Self, TypeVar


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Put the option or key `what` before the message of an `InputError`."""
    try:
        yield
    except InputError as error:
        raise error.at(what) from error


class TailtapError(Exception):
    """An error with a one-line message for the user and an exit status.

    Its fields are the attributes that the class and those above it annotate. So it can be pickled,
    copied and told to another machine, whatever its constructor takes.
    """

    exit_status = 2
    what: str
    place: str
    remedy: str

    def __init__(self, what: str, *, place: str = "", remedy: str = "") -> None:
        """`what` may say place and remedy itself, where nobody needs them apart."""
        super().__init__(what)
        self.what, self.place, self.remedy = what, place, remedy

    def __str__(self) -> str:
        """Place, what and remedy, on one line."""
        return ": ".join(part for part in (self.place, self.what, self.remedy) if part)

    def __reduce__(self) -> tuple[Any, ...]:
        """The class and the fields."""
        return restored, (type(self), vars(self))

    def at(self, place: object) -> Self:
        """This error, seen from where all that it tells of is at `place`."""
        return self.but(place=f"{place}: {self.place}" if self.place else str(place))

    def but(self, **fields: object) -> Self:
        """This error with other values of some fields."""
        return restored(type(self), {**vars(self), **fields})

    def or_elsewhere(self, instead: str) -> Self:
        """This error for who can do `instead`."""
        return self.but(remedy=f"{self.remedy} or {instead}" if self.remedy else instead)

    @property
    def lines(self) -> Sequence[str]:
        """What is printed, a line each: the message."""
        return (str(self),)


class InputError(TailtapError):
    """Bad input or usage: a file, an option or an experiment cannot be used as given."""

    exit_status = 2


class InputErrors(InputError):
    """Several mistakes of one file: each is a message, and `lines` has them all."""

    messages: tuple[str, ...]

    def __init__(self, messages: Sequence[str]) -> None:
        """The messages in the order of the file; there is at least one."""
        self.messages = tuple(messages)
        more = len(self.messages) - 1
        super().__init__(self.messages[0] + (f" (and {more} more)" if more else ""))

    @property
    def lines(self) -> Sequence[str]:
        """Each message."""
        return [f"{self.place}: {one}" if self.place else one for one in self.messages]


class QuantityError(InputError):
    """A text that is no quantity. Who knows which option or key has it says so."""

    text: str
    """Empty for what is no text."""

    def __init__(self, message: str, text: object) -> None:
        """The message, which does not say where `text` was given."""
        super().__init__(message)
        self.text = text if isinstance(text, str) else ""


class NotRead(InputError):
    """What is at `place` cannot be read: is not there, or the system refuses it."""

    errno: int
    """Of the system's error; 0 if it told none."""

    def __init__(self, error: OSError | ValueError, what: str = "cannot read it") -> None:
        """`what` was answered with `error`, where its own words do not say all."""
        words = getattr(error, "strerror", None) or str(error)
        super().__init__(f"{what}: {words}" if what else words)
        self.errno = getattr(error, "errno", None) or 0


class OfAnotherKind(InputError):
    """What is at `place` can be read, and is not of the kind that it should be, or damaged."""

    kind: str

    def __init__(self, kind: str, why: object = "", what: str = "") -> None:
        """It is no `kind`, such as ``stamp file``; `what` says that in its own words."""
        super().__init__(what or f"this is no {kind}" + (f": {why}" if why else ""))
        self.kind = kind


class WrongPacket(InputError):
    """A packet of the capture at `place` cannot be used: it is cut off, or the file is damaged."""

    packet: int
    """The first such packet, from 1."""

    def __init__(self, packet: int, what: str) -> None:
        """`what` is wrong with the packet, or with the file there."""
        super().__init__(what)
        self.packet = packet


class WrongKey(InputError):
    """The value of a key in a file cannot be as it is."""

    key: str
    """``vary.traffic.rate[1]``; file and line are before it in `place`."""

    def __init__(self, key: str, what: str) -> None:
        """`what` is wrong with the value of `key`."""
        super().__init__(what, place=key)
        self.key = key


class WrongValue(InputError):
    """`parameter` was given a `value` that it does not take."""

    parameter: str
    value: str

    def __init__(self, parameter: str, value: str, what: str) -> None:
        """`what` is wrong with it, or what to give instead."""
        super().__init__(what, place=f"{parameter} {value!r}")
        self.parameter, self.value = parameter, value


class ThroughLink(InputError):
    """What is at `place` is a link, by which somebody else may lead what is written anywhere."""

    def __init__(self) -> None:
        """Nothing is written there."""
        super().__init__(
            "this is a link, and nothing is written through links in a folder of results: remove it"
        )


class Occupied(InputError):
    """What is at `place` stays as it is, and so nothing is written there.

    Another place always helps; which option names it is known to the command.
    """

    begun: str

    def __init__(self, what: str, *, place: str, remedy: str = "", begun: str = "") -> None:
        """`begun` is what may have been begun there and can be finished: ``the search``."""
        super().__init__(what, place=place, remedy=remedy)
        self.begun = begun


class NothingBegun(InputError):
    """There is nothing at `place` that could be finished."""


class NotTraced(InputError):
    """No run at `place` has a trace."""


class Tapped(InputError):
    """An interface has a tap already where another one should be."""

    def __init__(self, what: str) -> None:
        """`what` says which interface."""
        clean = "`sudo tailtap clean` removes it"
        left = f"only before Linux 6.6 a tap that was killed stays: {clean}"
        super().__init__(what, remedy=f"stop it ({left})")


class NothingMatched(InputError):
    """Captures have no packets in common, or none that can be told apart."""


class NotSplittableError(InputError):
    """Captures were split up although their stamps are not in order, or a capture is damaged.

    They can be evaluated as one piece.
    """


class MachineError(TailtapError):
    """This machine cannot do it: the message says what is missing and how to get it."""

    exit_status = 3


class PackageMissing(MachineError):
    """What is asked for needs a Python package that is not installed."""

    package: str

    def __init__(self, what: str, package: str, install: str = "") -> None:
        """`what` needs it, as in ``PostgreSQL needs``; pip is told `install`, or its name."""
        super().__init__(
            f"{what} the package {package}", remedy=f"pip install {install or package}"
        )
        self.package = package


class NotWritten(MachineError):
    """Something cannot be written. `remedy` is against the reason, and may be empty.

    Another place always helps; which option names it is known to the command.
    """


class Interrupted(TailtapError):
    """The user stopped the work; whatever was finished is kept."""

    exit_status = 4


class Bug(TailtapError):
    """A fault of tailtap itself, which no option mends.

    The status is EX_SOFTWARE of sysexits.h: no gate takes it for an answer.
    """

    exit_status = 70
    told: str

    def __init__(self, message: str, told: str = "") -> None:
        """`told` is the traceback."""
        super().__init__(message)
        self.told = told


E = TypeVar("E", bound=TailtapError)


def restored(kind: type[E], fields: Mapping[str, object]) -> E:
    """An error of this class with these fields."""
    error = kind.__new__(kind, fields.get("what", ""))
    vars(error).update(fields)
    return error


State = Literal["ok", "poor", "missing", "untested"]
"""``poor`` works but harms measurements; ``untested`` could not be tried."""


@dataclass(frozen=True)
class Check:
    """What was looked at, what was found, and what mends it (empty when nothing has to be)."""

    area: str
    name: str
    state: State
    found: str
    remedy: str = ""
    required: bool = False
    """Whether ``tailtap run`` needs it."""


P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Findings:
    """Sentences: `problems` prevent it, `notes` should be known before it is made."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, others: Findings) -> None:
        """Have these as well."""
        self.problems += others.problems
        self.notes += others.notes

    def ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `question` answers; a `TailtapError` that it raises is a problem, and None.

        It is what the real thing asks first, and makes nothing.
        """
        try:
            return question(*args, **kwargs)
        except TailtapError as error:
            self.problems.append(str(error))
            return None


_ENGINES = ("podman", "crun", "runc", "container")
_OF_OTHERS = ("external",)
_BENCHMARKS = ("iperf", "iperf3", "netperf", "moongen", "trex", "trafgen", "cisco-trex", "sockperf")

NEARLY: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("docker", "k8s", "kubernetes", "containerd", "oci", "pod"), _ENGINES),
    **dict.fromkeys(("lxc", "lxd", "incus", "nspawn"), ("container",)),
    **dict.fromkeys(("kvm", "qemu", "libvirt", "virtual-machine", "guest", "firecracker"), ("vm",)),
    **dict.fromkeys(("none", "null", "veth", "cable", "no-dut"), ("wire",)),
    **dict.fromkeys(
        ("host", "native", "namespace", "netns", "baremetal", "metal", "linux"), ("bare-metal",)
    ),
    **dict.fromkeys(
        ("kernel", "linux", "router", "route", "ip", "ip-forward", "l3"), ("kernel-route",)
    ),
    **dict.fromkeys(("tc", "mirred", "l2"), ("tc-mirred",)),
    **dict.fromkeys(("linux-bridge", "brctl", "switch"), ("bridge",)),
    **dict.fromkeys(("openvswitch", "open-vswitch"), ("ovs", "ovs-dpdk")),
    **dict.fromkeys(("nft", "netfilter", "firewall", "iptables"), ("nftables",)),
    **dict.fromkeys(("dpdk",), ("testpmd", "dpdk-l2fwd", "dpdk-l3fwd")),
    **dict.fromkeys(("bpf", "ebpf", "af_xdp", "af-xdp"), ("xdp",)),
    **dict.fromkeys(("snort", "zeek", "ids", "ips"), ("suricata",)),
    **dict.fromkeys(
        ("vpp", "click", "fastclick", "nginx", "haproxy", "cilium"),
        _OF_OTHERS,
    ),
    **dict.fromkeys(_BENCHMARKS, _OF_OTHERS),
    **dict.fromkeys(("pktgen", "raw", "socket", "packet"), ("af_packet",)),
}
"""What others call kinds of ours, or what is nearest to them. A word may mean kinds of several
seams; `did_you_mean` takes those that are known where it stands."""


LONGEST_VALUE = 60
"""Characters of a wrong value that a message repeats."""


def shown(value: object) -> str:
    """A value of a file as whoever wrote it knows it, shortened where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, datetime.date):
        return f"the date {value}"
    else:
        text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: what is nearest to it, or all that is known."""
    words = list(known)
    meant = [
        name for name in NEARLY.get(word.strip().lower().replace(" ", "-"), ()) if name in words
    ]
    if meant:
        return f"take {' or '.join(meant)}"
    key, colon, value = word.partition(":")
    if colon and key in words:
        return f"write a blank behind the colon, '{key}: {value.strip()}'"
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if words else "there is none here"
