"""`tc-mirred`: the kernel forwards, from the ingress hook of one port to the egress of another.

A ``clsact`` queueing discipline, a classifier that matches everything, and the ``mirred`` action.
The classifier is ``matchall`` or, where the kernel lacks it, ``u32`` with an empty mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel

from tailtap.errors import MachineError
from tailtap.findings import Findings
from tailtap.forwarder.in_kernel import InKernel
from tailtap.forwarder.setting import Asked, Need, Setting
from tailtap.host import CommandFailed
from tailtap.platform.dut import Dut
from tailtap.schema import Strict

CLASSIFIERS: Mapping[str, Sequence[str]] = {
    "matchall": ["matchall"],
    "u32": ["u32", "match", "u32", "0", "0"],
}
"""Classifiers that match every packet, the better one first."""


class NoOptions(Strict):
    """A forwarder without options."""


class TcMirred:
    """The kernel's own forwarding path for redirected packets."""

    Options: type[BaseModel] = NoOptions
    needs: Sequence[Need] = (Need("tc", "install the Debian package iproute2"),)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Nothing: whether the kernel does it shows when it is tried."""

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Install the rule and read back that it is there. Raises `MachineError`.

        A DuT that carries both ways gets a second rule, from its egress port to the other.
        """
        classifier = install(dut, CLASSIFIERS)
        if dut.both_ways:
            install(replace(dut, ingress=dut.egress, egress=dut.ingress), [classifier])
        return InKernel("tc-mirred", {"classifier": classifier})


def install(dut: Dut, classifiers: Iterable[str]) -> str:
    """Redirect everything by the first of `classifiers` that this kernel has; its name.

    Raises `MachineError` when it has none of them.
    """
    host, port = dut.host, ("dev", dut.ingress)
    host.run(["tc", "qdisc", "replace", *port, "clsact"])
    redirect = ["action", "mirred", "egress", "redirect", "dev", dut.egress]
    refusals: list[str] = []
    for name in classifiers:
        rule = ["tc", "filter", "add", *port, "ingress", "protocol", "all", *CLASSIFIERS[name]]
        try:
            host.run([*rule, *redirect])
        except CommandFailed as error:
            refusals.append(str(error))
            continue
        shown = host.run(["tc", "filter", "show", *port, "ingress"]).stdout
        if name in shown and dut.egress in shown:
            return name
        refusals.append(f"{name}: the rule does not show up")
    raise MachineError(
        "this kernel cannot redirect packets (it needs CONFIG_NET_ACT_MIRRED and "
        f"CONFIG_NET_CLS_MATCHALL or CONFIG_NET_CLS_U32): {'; '.join(refusals)}"
    )
