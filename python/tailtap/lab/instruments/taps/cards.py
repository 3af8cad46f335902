"""Network cards behind splitters that stamp in hardware what they receive, by ``tailtap tap``.

They are what `tap.clock: hardware` makes of passive taps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tailtap.base.errors import InputError, MachineError
from tailtap.host.net.inside import inside
from tailtap.host.net.nic import Timestamping, timestamping
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.instruments.taps import NEVER, NOWHERE, Stamped
from tailtap.lab.instruments.taps.hardware import judge
from tailtap.lab.instruments.taps.inline import started
from tailtap.lab.instruments.taps.links import TapLink
from tailtap.lab.instruments.taps.passive import PassiveTap
from tailtap.lab.topology.graph import EGRESS, INGRESS, Flow
from tailtap.remote import Host
from tailtap.remote.process import Process


class CardTap(PassiveTap):
    """One process that reads what two cards of one clock stamped.

    The copies go on into the kernel, which drops them: they are addressed to others. A program that
    absorbed them would keep a card's driver from counting them.
    """

    def start(
        self,
        host: Host,
        folder: Path,
        flows: Sequence[Stamped],
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
        snap: int | None = None,
        flush: str = NEVER,
    ) -> Process:
        """Have both cards stamp every packet: `snap` is None, and stamps are written at once.

        Raises `InputError`, `MachineError`.
        """
        if key != MOONSNIFF:
            raise InputError(
                "tap.clock: hardware: stamps of cards are stored with MoonSniff's ids, and the "
                f"packets of this generator have {key}: take tap.clock: monotonic"
            )
        return started(host, folder, [*self.words(flows, namespaces), "--clock", "hardware"])

    def links(self, flow: Flow, namespaces: Mapping[str, str]) -> list[TapLink]:
        """Those of both splitters."""
        return [TapLink(INGRESS, flow.ingress.name), TapLink(EGRESS, flow.egress.name)]


def require_cards(namespace: str, cards: Mapping[str, str]) -> None:
    """Raises `MachineError` unless both cards stamp every packet, and by one clock.

    `cards` are by the port that each is in the network namespace of this name.
    """
    answers = inside((namespace, partial(timestamping, port)) for port in cards)
    require_one_clock(dict(zip(cards.values(), answers, strict=True)))


def require_one_clock(answers: Mapping[str, Timestamping]) -> None:
    """`require_cards` for the answers by card. A pure function."""
    for card, answer in answers.items():
        verdict = judge(answer)
        if verdict.method is None:
            raise MachineError(
                f"tap.clock: hardware: {card} cannot stamp every received packet: "
                f"{verdict.reason}: choose another card, or tap.clock: monotonic"
            )
    clocks = {card: answer.clock for card, answer in answers.items()}
    if None in clocks.values() or len(set(clocks.values())) > 1:
        told = " and ".join(
            f"{card} has {'none that is known' if clock is None else f'/dev/ptp{clock}'}"
            for card, clock in clocks.items()
        )
        raise MachineError(
            f"tap.clock: hardware: both cards need one clock, and {told}: take two ports of one "
            "card, or tap.clock: monotonic"
        )
