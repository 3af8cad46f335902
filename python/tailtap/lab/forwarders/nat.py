"""`nat`: the kernel routes, and packets leave with another source address and port (nftables)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.lab.forwarders.diagnosis import try_in_lab
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.kernel_route import KernelRoute
from tailtap.lab.forwarders.setting import Need, Setting
from tailtap.lab.generators.flows import Version
from tailtap.lab.platforms.dut import Dut
from tailtap.remote.local import LocalHost

OUTSIDE: dict[Version, str] = {4: "192.0.2.1", 6: "2001:db8::1"}
"""The address that packets leave with, by version of IP: one of those for documentation (RFC 5737,
RFC 3849), to which no flow goes."""


class Nat(KernelRoute):
    """`kernel-route`, and the kernel's translation of source addresses.

    Not masquerade: that takes the address of the port, and ports of the lab have none.
    """

    summary = "The kernel routes packets and translates their source addresses (NAT)."
    documentation = (
        "kernel-route with a rule of nftables: all packets leave with the source address "
        f"{OUTSIDE[4]}, or {OUTSIDE[6]}, and a port of the kernel's choice where several flows "
        "have the same. Connection tracking looks up each packet, and keeps an entry for each "
        "flow. Needs a kernel with CONFIG_NFT_NAT. Ready within 2 s."
    )
    needs: Sequence[Need] = (*KernelRoute.needs, Need("nft", "apt-get install nftables"))

    def diagnose(self) -> Iterator[Check]:
        """Set it up in a lab."""

        def attempt(dut: Dut, setting: Setting) -> str:
            for need in self.needs:
                need.find(LocalHost())
            self.start(dut, self.Options(), setting).close()
            return "was set up in a lab"

        return try_in_lab("nat", attempt, "apt-get install nftables, and CONFIG_NFT_NAT")

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Route as `kernel-route` does, and translate what leaves. Raises `MachineError`."""
        nft = self.needs[-1].find(dut.host)
        routed = super().start(dut, options, setting)
        family = "ip" if setting.ip == 4 else "ip6"
        leaving = ", ".join(dict.fromkeys(port for _, port in dut.ways))
        rules = f"""table {family} tailtap {{
  chain leaving {{
    type nat hook postrouting priority srcnat;
    oifname {{ {leaving} }} snat to {OUTSIDE[setting.ip]}
  }}
}}
"""
        done = dut.host.run([nft, "-f", "-"], stdin=rules, check=False)
        if done.status != 0:
            raise MachineError(
                "this kernel cannot translate addresses (it needs CONFIG_NFT_NAT and "
                f"CONFIG_NF_CONNTRACK): {' '.join(done.stderr.split())}"
            )
        facts = {**routed.facts, "source": OUTSIDE[setting.ip]}
        return InKernel("nat", facts, routed.kernel)
