"""`xdp`: our own XDP program, which redirects what comes in at one port to the other.

In native mode it runs in the driver. A network card has it where its interrupts go, which
`dut.irq` says. On links of the lab that is the sender's context unless the port polls in a thread
of its own (threaded NAPI), which goes where `dut.irq` says. In generic mode
it runs where the kernel's own receive path begins, behind receive packet steering, whatever the
driver; but the kernel does not run it on packets that were redirected to the port, as those of the
lab's taps are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict
from tailtap.base.units import list_cpus
from tailtap.host.net.port_threads import poll_in_threads
from tailtap.lab.forwarders.diagnosis import try_in_lab
from tailtap.lab.forwarders.own import Forwarding
from tailtap.lab.forwarders.served import Served, by_kernel
from tailtap.lab.forwarders.setting import Asked, Plain, Serves, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.lab import Lab

GENERIC_HINT = (
    "in generic mode the kernel lets packets pass that were redirected to the port, as the lab's "
    "are: use dut.options.mode: native"
)


class XdpOptions(Strict):
    """Where the program runs: in the kernel's receive path, or in the driver."""

    mode: Literal["native", "generic"] = Field(
        default="native",
        description="native runs the program in the driver, generic in the kernel's receive path, "
        "with any driver. generic is for network cards: the kernel does not run such programs on "
        "packets of the lab's links.",
        examples=["generic"],
    )


class Xdp(Plain):
    """``tailtap forward --xdp``; the program stays for as long as that process."""

    summary = "tailtap's own XDP program redirects packets from one port to the other (layer 2)."
    documentation = (
        "On the lab's links it runs in a kernel thread on the DuT's CPUs (threaded NAPI, Linux "
        "5.12), on network cards where dut.irq sends their interrupts. Ready within 2 s."
    )
    in_kernel = True
    serves: Serves = "ports"
    Options: type[BaseModel] = XdpOptions

    def diagnose(self) -> Iterator[Check]:
        """Set it up in a lab."""

        def attempt(dut: Dut, setting: Setting) -> str:
            self.start(dut, self.Options(), setting).close()
            return "was set up in a lab"

        return try_in_lab("xdp", attempt)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Only the limit of generic mode; a run shows whether the kernel can do it."""
        if cast("XdpOptions", options).mode == "generic" and not (asked.cards or asked.own_kernel):
            findings.notes.append(f"dut.forwarder: {GENERIC_HINT}")

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Forwarding:
        """Attach the program. Raises `MachineError`."""
        mode = cast("XdpOptions", options).mode
        lab = setting.lab
        cards = lab.graph.cards_of(dut.node)
        if mode == "native":
            # A veth port takes redirected frames only if its peer polls, as it does with GRO on.
            for port in dict.fromkeys(left for _, left in dut.ways if left not in cards):
                peer = lab.graph.peer(Port(dut.node, port))
                lab.host(peer.node).run(["ethtool", "-K", peer.name, "gro", "on"])
        started: dict[str, Forwarding] = {}
        threads: list[int] = []
        with contextlib.ExitStack() as stack:
            for number, (entered, left) in enumerate(dut.ways):
                if (left, entered) in dut.ways[:number]:
                    continue  # one program does both
                arguments = [entered, left, "--xdp", mode]
                arguments += ["--both-ways"] if (left, entered) in dut.ways else []
                running = started[f"{entered} to {left}"] = Forwarding.start("xdp", dut, arguments)
                stack.callback(running.close)
            if mode == "native":
                for entered in (entered for entered, _ in dut.ways if entered not in cards):
                    threads += _poll_in_thread(lab, dut, entered)
            stack.pop_all()
        kernel = Served("task", threads) if threads else by_kernel(lab, dut)
        hint = GENERIC_HINT if mode == "generic" else ""
        first = started.pop(next(iter(started)))
        return replace(first, kernel=kernel, hint=hint, others=started)


def _poll_in_thread(lab: Lab, dut: Dut, port: str) -> list[int]:
    """Move the polling of `port` to where its packets are to be received: the threads' ids.

    Raises `MachineError`.
    """
    cpus, placement = dut.cpus, lab.graph.node(dut.node).placement
    if not dut.host.own_kernel:
        cpus = lab.placed(dut.node).receiving[port]
    if not cpus or placement.threads:  # it is left where it is, or it is there
        return []
    try:
        return sorted(map(int, poll_in_threads(dut.host, port, list_cpus(cpus))))
    except MachineError as error:
        raise MachineError("use dut.options.mode: generic").at(error) from error
