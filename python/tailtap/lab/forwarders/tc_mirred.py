"""`tc-mirred`: the kernel forwards, from the ingress hook of one port to the egress of another.

A ``clsact`` queueing discipline, a classifier that matches everything, and the ``mirred`` action.
The classifier is ``matchall`` or, where the kernel lacks it, ``u32`` with an empty mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.lab.forwarders.diagnosis import try_in_lab
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.served import by_kernel
from tailtap.lab.forwarders.setting import Need, Plain, Serves, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.remote import Host

CLASSIFIERS: Mapping[str, Sequence[str]] = {
    "matchall": ["matchall"],
    "u32": ["u32", "match", "u32", "0", "0"],
}
"""Classifiers that match every packet, the better one first."""
# In one go: a line has many nodes.
_INSTALL = """in=$1; out=$2; shift 2
tc qdisc replace dev $in clsact
tc filter add dev $in ingress protocol all "$@" action mirred egress redirect dev $out
tc filter show dev $in ingress"""


class TcMirred(Plain):
    """The kernel's own forwarding path for redirected packets."""

    summary = "The kernel redirects packets from one port to the other (layer 2)."
    documentation = (
        "A clsact queueing discipline, a classifier that matches everything (matchall, else u32) "
        "and the action mirred. Ready within 2 s."
    )
    in_kernel = True
    serves: Serves = "ports"
    shares_cpus = True
    needs: Sequence[Need] = (Need("tc", "apt-get install iproute2"),)

    def diagnose(self) -> Iterator[Check]:
        """Try every classifier; one is enough."""

        def attempt(dut: Dut, setting: Setting) -> str:
            return f"mirred with {', '.join(_working(dut))}"

        remedy = "a kernel with CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_MATCHALL"
        return try_in_lab("tc-mirred", attempt, remedy, required=True)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Install a rule for each way and read back that it is there. Raises `MachineError`."""
        first, *others = dut.ways
        classifier = install(dut.host, first, CLASSIFIERS)
        for way in others:
            install(dut.host, way, [classifier])
        served = by_kernel(setting.lab, dut)
        return InKernel("tc-mirred", {"classifier": classifier}, served)


def _working(dut: Dut) -> list[str]:
    """The classifiers that redirect on this kernel. Raises `MachineError` when none does."""
    found: list[str] = []
    refusals: list[str] = []
    for name in CLASSIFIERS:
        try:
            found.append(install(dut.host, dut.ways[0], [name]))
        except MachineError as error:
            refusals.append(str(error))
    if not found:
        raise MachineError(refusals[0])
    return found


def install(host: Host, way: tuple[str, str], classifiers: Iterable[str]) -> str:
    """Redirect what comes in at the first port of `way` to the second; by which classifier.

    It is the first of `classifiers` that this kernel has. Raises `MachineError` when it has none.
    """
    entered, left = way
    refusals: list[str] = []
    for name in classifiers:
        words = ["install", entered, left, *CLASSIFIERS[name]]
        done = host.run(["sh", "-ec", _INSTALL, *words], check=False)
        if done.status != 0:
            refusals.append(f"{name}: {' '.join(done.stderr.split())}")
        elif name in done.stdout and left in done.stdout:
            return name
        else:
            refusals.append(f"{name}: the rule does not show up")
    raise MachineError(
        "this kernel cannot redirect packets (it needs CONFIG_NET_ACT_MIRRED and "
        f"CONFIG_NET_CLS_MATCHALL or CONFIG_NET_CLS_U32): {'; '.join(refusals)}"
    )
