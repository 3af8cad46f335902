"""Other load generators, run from a template: MoonGen, TRex, trafgen, dnsperf, any command.

Their packets must carry ids: MoonSniff's id and type byte where our own have them, at the start of
the UDP payload, or an integer at a place that `key` says. That is what taps read that write stamps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.schema import NoOptions, Strict, as_value_error, check_command, fill_in
from tailtap.lab.generators.flows import CLIENT, SERVER, Sending
from tailtap.lab.generators.own import OwnGenerator
from tailtap.records.datapath import GeneratorRecord
from tailtap.remote import Host
from tailtap.remote.local import STOP_SECONDS, Process, require_program

if TYPE_CHECKING:
    from tailtap.lab.generators.model import Traffic

PLACEHOLDERS = ("interface", "rate", "gap", "size", "packets", "seconds", "cpu", "server", "client")
"""The names that a template can have in braces: `rate` in pkt/s, `gap` between packets in ns,
`size` in bytes with the check sequence; `server` and `client` are the addresses that a DuT which
answers and its clients have.
"""


REMEDY = "check traffic.external.command"
MAX_SAID = 500
"""Characters of what the command printed last that are kept with the run."""


def _check_key(key: str) -> str:
    from tailtap import _core

    with as_value_error():
        _core.check_tap_key(key)
    return key


MOONSNIFF = "moonsniff"


class External(Strict):
    """How to call another generator, and where its packets carry their ids."""

    command: Annotated[
        str,
        Field(max_length=10_000),
        AfterValidator(lambda text: check_command(text, PLACEHOLDERS)),
    ] = Field(
        description="The command. {interface}, {rate} (pkt/s), {gap} (ns between packets), {size} "
        "(bytes), {packets}, {seconds} and {cpu} are filled in, and {server} and {client}, the "
        "addresses where dut.forwarder is server; {{ is a brace.",
        examples=["trafgen --dev {interface} --conf udp.cfg --num {packets}"],
    )
    key: Annotated[str, AfterValidator(_check_key)] = Field(
        default=MOONSNIFF,
        description="Where its packets carry their ids: moonsniff, or OFFSET:WIDTH:le|be with both "
        "in bytes, as for `tailtap tap --key`.",
        examples=["46:4:be"],
    )


class ExternalGenerator:
    """A command that sends and ends. The taps show whether it sent what was asked."""

    summary = "Any command that sends packets and ends: traffic.external says which."
    documentation = (
        "Its packets must carry ids: MoonSniff's, or those that traffic.external.key describes. "
        "The taps say whether the command sent what was asked."
    )
    Options: type[BaseModel] = NoOptions

    def diagnose(self) -> Iterator[Check]:
        yield Check("generators", "external", "ok", "needs nothing of its own")

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        words = _words("tt", traffic)
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
                process = self._start(host, *sending)
                stack.callback(process.close)
                started.append(process)
            stack.pop_all()
        return started

    def _start(self, host: Host, port: str, traffic: Traffic) -> Process:
        words = _words(port, traffic)
        require_program(words[0], REMEDY)
        # Its output goes to standard error; standard output stays open until it ends.
        pinned = ["taskset", "--cpu-list", str(traffic.cpu), *words]
        return host.start(["sh", "-c", 'exec "$@" 3>&1 1>&2', "generator", *pinned])

    def probe(self, host: Host, sendings: Sequence[Sending]) -> None:
        OwnGenerator("af_packet").probe(host, sendings)

    def result(self, processes: Sequence[Process]) -> Sequence[GeneratorRecord]:
        return [self._result(process) for process in processes]

    def _result(self, process: Process) -> GeneratorRecord:
        process.read_to_end(STOP_SECONDS)
        return GeneratorRecord(
            generator="external",
            sent=None,
            failed=None,
            scheduled_rate=None,
            achieved_rate=None,
            slip_ns=None,
            said=process.errors()[-MAX_SAID:],
        )


def _words(port: str, traffic: Traffic) -> list[str]:
    assert traffic.external is not None
    values = {
        "interface": port,
        "rate": traffic.rate,
        "gap": round(1e9 / traffic.rate),
        "size": traffic.sizes[0],
        "packets": traffic.packets,
        "seconds": f"{traffic.duration / 1e9:g}",
        "cpu": traffic.cpu,
        "server": SERVER[traffic.ip],
        "client": CLIENT[traffic.ip],
    }
    return fill_in(traffic.external.command, values)
