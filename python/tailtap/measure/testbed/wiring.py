"""Which of a testbed's cables a measurement uses: a pure function of the testbed."""

from __future__ import annotations

from tailtap.base.errors import InputError
from tailtap.lab.topology.graphs import Cables
from tailtap.measure.testbed.model import Cable, RoleMap, Socket, Testbed


def cables_of(testbed: Testbed, entries: int = 1) -> tuple[Cables, ...]:
    """The cables before and behind the DuT by the cards at their ends, two for each of `entries`.

    Raises `InputError` for a testbed without them, or whose roles do not fit to them.
    """
    roles = testbed.roles
    found = [_turned(cable, roles.dut) for cable in testbed.cables
             if roles.dut in (end.host for end in cable.ends)]  # fmt: skip
    if len(found) < 2 * entries:
        each = "" if entries == 1 else f" for each of {entries} flows"
        raise InputError(
            f"cables: {len(found)} of them end at {roles.dut}, which is the DuT: it needs one "
            f"before it and one behind it{each}"
        )
    pairs = list(zip(found[::2], found[1::2], strict=False))[:entries]
    made = tuple(_pair(roles, *pair) for pair in pairs)
    if len({one.tap_kind for one in made}) > 1:
        raise InputError(
            "cables: all of the DuT need a splitter, or none of them: all flows are stamped alike"
        )
    return made


def _pair(roles: RoleMap, before: Cable, behind: Cable) -> Cables:
    dut = (before.ends[0].card, behind.ends[0].card)
    others = (before.ends[1], behind.ends[1])
    if before.splitter is None and behind.splitter is None:
        if roles.timestamper != roles.generator:
            raise InputError(
                "cables: no cable of the DuT has a splitter, so packets are stamped where they "
                "are sent: give generator and timestamper the same host, or cables a splitter"
            )
        _require(others, roles.timestamper, "timestamper")
        return Cables(dut, (others[0].card, others[1].card))
    if before.splitter is None or behind.splitter is None:
        raise InputError("cables: both cables of the DuT need a splitter, or none of them")
    copies = (before.splitter, behind.splitter)
    _require(copies, roles.timestamper, "timestamper")
    _require(others, roles.generator, "generator")
    return Cables(dut, (copies[0].card, copies[1].card), (others[0].card, others[1].card))


def _turned(cable: Cable, dut: str) -> Cable:
    """The cable with the DuT's end first."""
    one, other = cable.ends
    ends = (one, other) if one.host == dut else (other, one)
    return cable.model_copy(update={"ends": ends})


def _require(cards: tuple[Socket, Socket], host: str, role: str) -> None:
    for card in cards:
        if card.host != host:
            raise InputError(f"cables: {card} should be a card of {host}, which is the {role}")
