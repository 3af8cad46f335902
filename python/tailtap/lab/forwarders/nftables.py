"""`nftables`: the kernel routes, and rules of the user's say what passes and how."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.errors import InputError
from tailtap.base.schema import Strict
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.kernel_route import KernelRoute
from tailtap.lab.forwarders.rules import RuleFile, read_rules
from tailtap.lab.forwarders.setting import Asked, Need, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.remote import Completed
from tailtap.remote.local import LocalHost

MOST_RULES = 100
"""Of how many rules the packets are told."""
_COUNTED = re.compile(r"^\s*(.*?)counter packets ([0-9]+) bytes [0-9]+ ?(.*)$", re.M)


class NftablesOptions(Strict):
    """The file with the rules."""

    rules: RuleFile = Field(
        description="A file with rules for nft(8). $ingress and $egress are the names of the two "
        "ports. Rules that count have their packets in run.json.",
        examples=["firewall.nft"],
    )


@dataclass(frozen=True)
class Ruled(InKernel):
    """Routes, and rules that count."""

    dut: Dut | None = None

    def stop(self) -> dict[str, Any]:
        """Return the facts and what the rules counted; the rules stay."""
        assert self.dut is not None  # `start` names it
        told = self.dut.host.run(["nft", "list", "ruleset"], check=False).stdout
        return {**super().stop(), "rule_packets": counted(told)}


def counted(told: str) -> list[dict[str, Any]]:
    """The packets of each rule with a counter, of what ``nft list ruleset`` prints."""
    rows = [
        {"rule": f"{match[1]}{match[3]}".strip(), "packets": int(match[2])}
        for match in _COUNTED.finditer(told)
    ]
    return rows[:MOST_RULES]


class Nftables(KernelRoute):
    """`kernel-route`, and a file of rules."""

    summary = "The kernel routes packets, filtered or translated by rules of nftables."
    documentation = (
        "kernel-route with the rules of a file: a firewall, translation of addresses, or "
        "whatever else nft(8) takes and the kernel has. Ready within 2 s."
    )
    Options: type[BaseModel] = NftablesOptions
    needs: Sequence[Need] = (*KernelRoute.needs, Need("nft", "apt-get install nftables"))

    def diagnose(self) -> Iterator[Check]:
        """Look for its programs: what its rules need of the kernel, they say."""
        return find_programs("nftables", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out whether this kernel takes the rules: in a network of its own, as root."""
        chosen = cast("NftablesOptions", options)
        if os.geteuid() == 0 and not asked.own_kernel:
            findings.ask(_try, chosen.rules)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Ruled:
        """Route as `kernel-route` does, and load the rules.

        Raises `MachineError`, and `InputError` for rules that nft or this kernel does not take.
        """
        chosen = cast("NftablesOptions", options)
        nft = self.needs[-1].find(dut.host)
        routed = super().start(dut, options, setting)
        words = _command(nft, dut.ingress, dut.egress)
        _require(chosen.rules, dut.host.run(words, stdin=read_rules(chosen.rules), check=False))
        return Ruled("nftables", routed.facts, routed.kernel, dut=dut)


def _command(nft: str, ingress: str, egress: str) -> list[str]:
    names = ("--define", f"ingress={ingress}", "--define", f"egress={egress}")
    return [nft, *names, "-f", "-"]


def _try(rules: str) -> None:
    """Raises `InputError` for rules that nft or this kernel does not take."""
    words = ["unshare", "--net", *_command("nft", "tt-in", "tt-out"), "--check"]
    _require(rules, LocalHost().run(words, stdin=read_rules(rules), check=False))


def _require(rules: str, done: Completed) -> None:
    if done.status != 0:
        said = " ".join(done.stderr.split()).replace("/dev/stdin", rules)
        raise InputError(f"nft, or this kernel, does not take these rules: {said}").at(rules)
