"""Other load generators, run from a template: MoonGen, TRex, trafgen, dnsperf, any command.

Their packets must carry ids: MoonSniff's id and type byte where our own have them, at the start of
the UDP payload, or an integer at a place that `key` says. That is what taps read that write stamps.
"""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, Field, model_validator

from tailtap.base.errors import Check, Findings
from tailtap.base.schema import (
    NoOptions,
    Reserved,
    Strict,
    Time,
    as_value_error,
    check_command,
    fill_in,
)
from tailtap.host.changes.huge_pages import Pages, require_possible
from tailtap.host.net.pci import PciDriver
from tailtap.lab.generators.flows import CLIENT, SERVER, Sending
from tailtap.lab.generators.own import OwnGenerator
from tailtap.records.datapath import GeneratorRecord
from tailtap.remote import Host
from tailtap.remote.local import STOP_SECONDS, Process, require_program

if TYPE_CHECKING:
    from tailtap.lab.generators.model import Traffic

CARDS = ("pci", "pci_back", "port", "port_back")
"""The PCI addresses of the card that sends and of the one that absorbs, and the numbers that DPDK
has for both, which counts them in the order of their addresses."""
PLACEHOLDERS = (
    *("interface", "rate", "mbit", "gap", "size", "packets", "seconds", "flows", "cpu"),
    *("server", "client", *CARDS),
)
"""The names that a template can have in braces: `rate` in pkt/s, `mbit` the same in Mbit/s, `gap`
between packets in ns, `size` in bytes with the check sequence; `server` and `client` are the
addresses that a DuT which answers and its clients have.
"""


KEYS = "traffic.external"
REMEDY = "check traffic.external.command"
MAX_SAID = 500
"""Characters of what the command printed last that are kept with the run."""


def _check_key(key: str) -> str:
    from tailtap import _core

    with as_value_error():
        _core.check_tap_key(key)
    return key


def _check_pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    if groups != 1:
        raise ValueError(
            f"{text!r} has {groups} groups: put the number, and nothing else, in parentheses"
        )
    return text


MOONSNIFF = "moonsniff"


class External(Strict):
    """How to call another generator, and where its packets carry their ids."""

    command: Annotated[
        str,
        Field(max_length=10_000),
        AfterValidator(lambda text: check_command(text, PLACEHOLDERS)),
    ] = Field(
        description="The command. {interface}, {rate} (pkt/s), {mbit} (the same in Mbit/s), {gap} "
        "(ns between packets), {size} (bytes), {packets}, {seconds}, {flows} and {cpu} are filled "
        "in, {server} and {client}, the addresses where dut.forwarder is server, and with driver "
        "{pci}, {pci_back}, {port} and {port_back}; {{ is a brace.",
        examples=["trafgen --dev {interface} --conf udp.cfg --num {packets}"],
    )
    key: Annotated[str, AfterValidator(_check_key)] = Field(
        default=MOONSNIFF,
        description="Where its packets carry their ids: moonsniff, or OFFSET:WIDTH:le|be with both "
        "in bytes, as for `tailtap tap --key`.",
        examples=["46:4:be"],
    )
    driver: PciDriver | None = Field(
        default=None,
        description="The driver that the generator's two cards have meanwhile, for a command that "
        "drives them itself (DPDK): vfio-pci, or uio_pci_generic where there is no IOMMU. {pci} "
        "and {pci_back} are the addresses of the card that sends and of the one that absorbs, "
        "{port} and {port_back} their numbers in DPDK. Only on a testbed with splitters.",
        examples=["vfio-pci"],
    )
    memory: Reserved = None
    begin: Time = Field(
        default=120_000_000_000,
        description="How long it may take until the command's first packet: DPDK maps memory and "
        "waits for links.",
        examples=["30 s"],
    )
    sent: Annotated[str, AfterValidator(_check_pattern)] | None = Field(
        default=None,
        description="A regular expression for how many packets it sent, as it prints that, with "
        "the number in parentheses; of several the last. By default the taps alone count.",
        examples=["TX.* total ([0-9]+) packets"],
    )

    @model_validator(mode="after")
    def _addresses_are_of_cards(self) -> External:
        for _, field, _, _ in string.Formatter().parse(self.command):
            if field in CARDS and self.driver is None:
                raise ValueError(
                    f"{{{field}}} is of cards that the kernel hands over: write driver: vfio-pci"
                )
        return self


class ExternalGenerator:
    """A command that sends and ends. The taps show whether it sent what was asked."""

    summary = "Any command that sends packets and ends: traffic.external says which."
    documentation = (
        "Its packets must carry ids: MoonSniff's, or those that traffic.external.key describes. "
        "The taps say whether the command sent what was asked."
    )
    Options: type[BaseModel] = NoOptions

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[Process, str] = WeakKeyDictionary()
        """Where processes print how many packets they sent."""

    def diagnose(self) -> Iterator[Check]:
        yield Check("generators", "external", "ok", "needs nothing of its own")

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        assert traffic.external is not None
        words = _words(Sending("tt", traffic, ("tt", "tt")))
        if (memory := traffic.external.memory) is not None:
            findings.ask(lambda: require_possible(memory, Pages.smallest(), keys=KEYS))
        if findings.ask(require_program, words[0], REMEDY) is not None:
            findings.notes.append(
                f"traffic.external.command: tailtap does not check what {words[0]} needs"
            )

    def start(self, host: Host, sendings: Sequence[Sending]) -> Sequence[Process]:
        """Run the command on `traffic.cpu` for each flow; it does its own warm-up, if any.

        Raises `MachineError` when it is missing.
        """
        with contextlib.ExitStack() as stack:
            started = []
            for sending in sendings:
                process = self._start(host, sending)
                stack.callback(process.close)
                started.append(process)
            stack.pop_all()
        return started

    def _start(self, host: Host, sending: Sending) -> Process:
        words = _words(sending)
        require_program(words[0], REMEDY)
        # Its output goes to standard error; standard output stays open until it ends.
        pinned = ["taskset", "--cpu-list", str(sending.traffic.cpu), *words]
        process = host.start(["sh", "-c", 'exec "$@" 3>&1 1>&2', "generator", *pinned])
        external = sending.traffic.external
        if external is not None and external.sent is not None:
            self._counts[process] = external.sent
        return process

    def probe(self, host: Host, sendings: Sequence[Sending]) -> None:
        OwnGenerator("af_packet").probe(host, sendings)

    def result(self, processes: Sequence[Process]) -> Sequence[GeneratorRecord]:
        return [self._result(process) for process in processes]

    def _result(self, process: Process) -> GeneratorRecord:
        process.read_to_end(STOP_SECONDS)
        said = process.last_errors()
        counts = re.findall(self._counts[process], said) if process in self._counts else ()
        digits = counts[-1].replace(",", "") if counts else ""
        return GeneratorRecord(
            generator="external",
            sent=int(digits) if digits.isdecimal() else None,
            failed=None,
            scheduled_rate=None,
            achieved_rate=None,
            slip_ns=None,
            said=said[-MAX_SAID:],
        )


def _words(sending: Sending) -> list[str]:
    traffic, cards = sending.traffic, sending.cards
    assert traffic.external is not None
    of_cards: dict[str, object] = {}
    if cards is not None:
        of_cards = dict(zip(CARDS, (*cards, *map(sorted(cards).index, cards)), strict=True))
    values: dict[str, object] = {
        **of_cards,
        "interface": sending.port,
        "rate": traffic.rate,
        "mbit": f"{traffic.rate * traffic.sizes[0] * 8 / 1e6:.9g}",
        "gap": round(1e9 / traffic.rate),
        "size": traffic.sizes[0],
        "packets": traffic.packets,
        "seconds": f"{traffic.duration / 1e9:g}",
        "flows": traffic.ranges().flows,
        "cpu": traffic.cpu,
        "server": SERVER[traffic.ip],
        "client": CLIENT[traffic.ip],
    }
    return fill_in(traffic.external.command, values)
