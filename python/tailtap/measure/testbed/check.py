"""`tailtap testbed check`: are all hosts there, and is each cable where the file says?

Every card that the file names sends a frame to everybody, and all others listen. What was heard
where is compared with the cables. A card that says that it is up may still talk to its peer, and
the first frames are late or lost then: they are sent anew for some seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from tailtap.measure.testbed.lent import LentHost, lend
from tailtap.measure.testbed.model import Cable, Socket, Testbed, senders_of
from tailtap.records.printed import Answer, CableRow, HostRow, TestbedCheckRecord

FLIGHT_SECONDS = 0.2
"""How long a frame may be under way, and an interrupt may wait."""
HEARING_SECONDS = 5.0
"""For how long frames are sent anew while a cable is not as the file says."""

Heard = Mapping[Socket, frozenset[Socket]]
"""By the card that sent: the cards by which its frame came in."""


def check(testbed: Testbed, tell: Callable[[str], None]) -> TestbedCheckRecord:
    """Send packets over every cable. The cards are lent meanwhile, and given back.

    `tell` is given a line for each host to which an interpreter was copied.
    """
    with contextlib.ExitStack() as stack:
        lent = dict(lend(testbed, stack, tell))
        there = {name: one for name, one in lent.items() if isinstance(one, LentHost)}
        cables, _ = listened(testbed, there)
    hosts = [
        HostRow(name=name, kernel=None, said=one)
        if isinstance(one, str)
        else HostRow(name=name, kernel=one.lent.kernel, said="")
        for name, one in lent.items()
    ]
    behind = [cable.splitter for cable in testbed.cables if cable.splitter is not None]
    return TestbedCheckRecord(
        hosts=hosts,
        cables=cables,
        stamping={
            str(card): there[card.host].lent.stamping[card.card]
            for card in behind
            if card.host in there
        },
        right=all(one.kernel is not None for one in hosts)
        and all(cable.answer == "ok" for cable in cables),
    )


def judged(testbed: Testbed, there: Mapping[str, LentHost], came: Heard) -> list[CableRow]:
    """What was heard of each cable, by the hosts that are there."""
    down = {Socket(name, card) for name, one in there.items() for card in one.lent.down}
    pairs = zip(testbed.cables, senders_of(testbed), strict=True)
    return [judge(cable, came, down, set(there), sender) for cable, sender in pairs]


def judge(
    cable: Cable,
    heard: Heard,
    down: set[Socket],
    there: set[str],
    sender: Socket | None = None,
) -> CableRow:
    """What was heard of a cable: a pure function. `there` are the hosts that could be asked, and
    `sender` is the end of which the splitter has to see the packets; None where either will do.
    """
    answer, said = _judged(cable, heard, down, there, sender)
    splitter = None if cable.splitter is None else str(cable.splitter)
    return CableRow(ends=list(map(str, cable.ends)), splitter=splitter, answer=answer, said=said)


def _judged(
    cable: Cable, heard: Heard, down: set[Socket], there: set[str], measured: Socket | None
) -> tuple[Answer, str]:
    """The answer, and what is wrong as a sentence without its end; empty when nothing is."""
    one, other = cable.ends
    cards = [*cable.ends, *([] if cable.splitter is None else [cable.splitter])]
    missing = sorted({card.host for card in cards} - there)
    if missing:
        return "unknown", f"{missing[0]} could not be asked"
    for sender, wanted in ((one, other), (other, one)):
        found = heard.get(sender, frozenset())
        if wanted in found:
            continue
        others = sorted(map(str, found - {cable.splitter}))
        if others:
            return "wrong", f"what {sender} sends comes to {' and '.join(others)}"
        lifeless = " and ".join(str(card) for card in cable.ends if card in down)
        more = f"; no link at {lifeless}" if lifeless else ""
        return "dead", f"what {sender} sends comes to nobody{more}"
    splitter = cable.splitter
    seen = [end for end in cable.ends if splitter in heard[end]]
    if splitter is not None and not seen:
        where = sorted(
            {str(card) for end in cable.ends for card in heard[end]} - set(map(str, cards))
        )
        more = f"; {' and '.join(where)} does" if where else ""
        return "wrong", f"{splitter} sees nothing of this cable{more}"
    if splitter is not None and measured is not None and measured not in seen:
        return "wrong", (
            f"{splitter} sees what {seen[0]} sends, and {measured} sends what is measured: it is "
            "on the other fibre"
        )
    return "ok", ""


def listened(testbed: Testbed, there: Mapping[str, LentHost]) -> tuple[list[CableRow], Heard]:
    """Have every card send frames, and listen at all others: what is judged of it, and heard."""
    sockets = [Socket(name, card) for name, one in there.items() for card in one.cards]
    cards = {str(socket): socket for socket in sockets}
    came: dict[Socket, frozenset[Socket]] = dict.fromkeys(cards.values(), frozenset())
    deadline = time.monotonic() + HEARING_SECONDS
    while True:
        for token, sender in cards.items():
            there[sender.host].ask(send=sender.card, token=token)
        time.sleep(FLIGHT_SECONDS)
        for name, one in there.items():
            for card, tokens in one.ask(hear=True).heard.items():
                for token in cards.keys() & {*tokens}:  # others may be checked, too
                    came[cards[token]] |= {Socket(name, card)}
        rows = judged(testbed, there, came)
        if not any(row.answer in ("wrong", "dead") for row in rows) or time.monotonic() > deadline:
            return rows, came
