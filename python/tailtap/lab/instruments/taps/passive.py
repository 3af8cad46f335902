"""eBPF programs at network cards behind splitters, or at mirror ports, by ``tailtap tap``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailtap.base.check import Check
from tailtap.lab.instruments.taps.inline import InlineTap
from tailtap.lab.instruments.taps.links import TapLink
from tailtap.lab.topology.graph import EGRESS, INGRESS, Flow


class PassiveTap(InlineTap):
    """One process that stamps and absorbs what both splitters copy.

    Both stamps are taken in the same way, when the interrupt of a card is served.
    """

    summary = "eBPF programs at network cards behind splitters, or at mirror ports."
    documentation = (
        "They stamp the copies of packets that optical splitters or the mirror ports of a switch "
        "send to two cards, and absorb them: the way through the DuT has no tap in it. A testbed "
        "(docs/howto/testbed.md) says which cables have splitters. Both stamps come as late as the "
        "interrupts of the cards: switch their moderation off (`ethtool -C`), or take "
        "`tap.clock: hardware` where the cards stamp what they receive (docs/howto/hardware.md)."
    )

    def diagnose(self) -> Iterator[Check]:
        """Nothing of its own: it needs what the inline tap needs."""
        return iter(())

    def links(self, flow: Flow, namespaces: Mapping[str, str]) -> list[TapLink]:
        """Those of both splitters."""
        return [
            TapLink(INGRESS, flow.ingress.name, absorb=True),
            TapLink(EGRESS, flow.egress.name, absorb=True),
        ]
