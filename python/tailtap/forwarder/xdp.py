"""`xdp`: our own XDP program, which redirects what comes in at one port to the other.

In native mode it runs in the driver. On links of the lab that is the sender's context unless the
port polls in a thread of its own (threaded NAPI), which goes to the DuT's CPUs. In generic mode it
runs where the kernel's own receive path begins, behind receive packet steering, whatever the
driver; but the kernel does not run it on packets that were redirected to the port, as those of the
lab's taps are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

from pydantic import BaseModel

from tailtap.errors import MachineError
from tailtap.findings import Findings
from tailtap.forwarder.own import Forwarding
from tailtap.forwarder.setting import Asked, Need, Setting
from tailtap.host import CommandFailed, Host
from tailtap.host.local import LocalHost
from tailtap.platform.dut import Dut
from tailtap.schema import Strict
from tailtap.topology.lab import FROM_DUT, TO_DUT

# The kernel threads of a port are called napi/PORT-NUMBER; 15 characters are kept.
_THREADS = """for folder in /proc/[0-9]*; do
    read -r name < "$folder/comm" 2> /dev/null || continue
    case $name in napi/"$1"-*) echo "${folder#/proc/}" ;; esac
done"""
# Like the softirq that it stands for, such a thread goes before other work.
_MOVE = 'taskset --pid --cpu-list "$1" "$2" > /dev/null && renice -n -20 -p "$2" > /dev/null'

GENERIC_HINT = (
    "in generic mode the kernel lets packets pass that were redirected to the port, as the lab's "
    "are: use dut.options.mode: native"
)


class XdpOptions(Strict):
    """Where the program runs: in the kernel's receive path, or in the driver."""

    mode: Literal["native", "generic"] = "native"


class Xdp:
    """``tailtap forward --xdp``; the program stays for as long as that process."""

    Options: type[BaseModel] = XdpOptions
    needs: Sequence[Need] = ()

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Nothing but what generic mode is known for; whether the kernel can shows in a run."""
        if cast("XdpOptions", options).mode == "generic" and not (asked.cards or asked.own_kernel):
            findings.notes.append(f"dut.forwarder: {GENERIC_HINT}")

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Forwarding:
        """Attach the program. Raises `MachineError`."""
        mode = cast("XdpOptions", options).mode
        arguments = [dut.ingress, dut.egress, "--xdp", mode]
        arguments += ["--both-ways"] if dut.both_ways else []
        if mode == "native" and setting.lab.cables is None:
            # A veth port takes redirected frames only when its peer polls, which it does for GRO.
            for peer in (FROM_DUT, TO_DUT) if dut.both_ways else (FROM_DUT,):
                setting.lab.tap.run(["ethtool", "-K", peer, "gro", "on"])
        running = Forwarding.start("xdp", dut, arguments)
        try:
            if mode == "native":
                for port in (dut.ingress, dut.egress) if dut.both_ways else (dut.ingress,):
                    _poll_in_thread(dut.host, port, dut.cpus)
        except BaseException:
            running.close()
            raise
        return replace(running, hint=GENERIC_HINT if mode == "generic" else "")


def _poll_in_thread(host: Host, port: str, cpus: Sequence[int]) -> None:
    """Move the polling of `port` to a thread on `cpus`. Raises `MachineError`."""
    wanted = ",".join(str(cpu) for cpu in cpus)
    # A container does not see the kernel's threads, and shares the kernel.
    kernel = host if host.own_kernel else LocalHost()

    def threads() -> set[str]:
        return set(kernel.run(["sh", "-c", _THREADS, "threads", port]).stdout.split())

    try:
        before = threads()  # other measurements have ports of the same name
        host.run(["sh", "-c", 'echo 1 > /sys/class/net/"$1"/threaded', "threaded", port])
        made = threads() - before
        for thread in made:
            kernel.run(["sh", "-c", _MOVE, "move", wanted, thread])
    except CommandFailed as error:
        raise _unmoved(host, port, wanted, error.reason) from error
    if not made:
        raise _unmoved(host, port, wanted, "there is no such thread")


def _unmoved(host: Host, port: str, cpus: str, reason: str) -> MachineError:
    return MachineError(
        f"the polling of {port} cannot be moved to the CPUs {cpus} on {host.name} (threaded NAPI, "
        f"Linux 5.12): use dut.options.mode: generic ({reason})"
    )
