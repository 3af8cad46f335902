"""How much room the taps of flows have in the kernel, and what `tailtap tap` is told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError, MachineError
from tailtap.host.net.nic import Timestamping, parse
from tailtap.lab.instruments.taps.hardware import differing, judge, require_stamps
from tailtap.lab.instruments.taps.inline import (
    LEAST_ROOM,
    MAX_ROOM,
    QUIET_SHARE,
    require_clocks,
    rooms,
)
from tailtap.lab.instruments.taps.kinds import Stamped
from tailtap.lab.instruments.taps.links import (
    At,
    TapLink,
    parse_link,
    parse_links,
    with_hashes,
    with_rooms,
    with_sides,
)
from tailtap.lab.topology.graphs import FORWARD, smallest
from tailtap.records.datapath import of_core

FLOW = smallest().flow(FORWARD)


def of(*packets: int) -> list[int]:
    return rooms([Stamped(FLOW, count) for count in packets])


def test_short_flows_are_written_when_they_are_over() -> None:
    assert of(100_000) == [QUIET_SHARE * 100_000]
    assert of(100_000, 5_000) == [QUIET_SHARE * 100_000, QUIET_SHARE * 5_000]
    assert of(1) == [LEAST_ROOM]


def test_long_flows_share_the_room_out() -> None:
    assert of(10**9) == [MAX_ROOM // 2]
    assert of(10**9, 10**9) == [MAX_ROOM // 4, MAX_ROOM // 4]
    fast, slow = of(10**9, 10**6)
    assert fast > 100 * slow


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=100))
def test_together_they_have_twice_the_room_at_most(packets: list[int]) -> None:
    """A tap rounds up to a power of two; flows with hardly any packets keep the least."""
    taken = sum(2 * (1 << (room - 1).bit_length()) for room in of(*packets))
    assert taken <= 2 * MAX_ROOM + 2 * len(packets) * LEAST_ROOM


def test_links_can_have_room_of_their_own() -> None:
    links = [TapLink("a", "x"), TapLink("b", "y")]
    assert with_rooms(links, []) == (None, links)
    assert with_rooms(links, ["4096", "b=7"]) == (4096, [links[0], TapLink("b", "y", records=7)])


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (["many"], "no number of packets"),
        (["a=-1"], "no number of packets"),
        (["c=1"], "the links are a, b"),
        (["1", "2"], "said twice"),
        (["a=1", "a=2"], "said twice"),
    ],
)
def test_room_that_says_nothing_is_refused(records: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_rooms([TapLink("a", "x"), TapLink("b", "y")], records)


def test_a_name_leads_into_a_folder() -> None:
    write = "out/{link}.stamps"
    [one, other] = parse_links(["001-a/in=x", "b=y:drop"], write)
    assert (one.name, str(one.file(write))) == ("001-a/in", "out/001-a/in.stamps")
    assert (other.name, str(other.file(write))) == ("b", "out/b.stamps")


def test_what_is_stamped_stands_behind_the_interface() -> None:
    texts = ["a=x", "n/x@receipt", "c=x@egress:y", "d=x:drop", "e=x:dev:drop"]
    assert parse_links(texts, "{link}.stamps") == [
        TapLink("a", "x"),
        TapLink("x", "x", "n", At.RECEIPT),
        TapLink("c", "x", at=At.EGRESS, onward="y"),
        TapLink("d", "x", absorb=True),
        TapLink("e", "x", onward="drop"),
    ]
    for wrong in ("@receipt", "x@egress@receipt:", "x:", "x:dev:"):
        with pytest.raises(InputError, match="is not a link"):
            parse_link(wrong)


@pytest.mark.parametrize("forward", ["drop", "y", "dev:drop"])
def test_a_tap_of_what_is_received_only_listens(forward: str) -> None:
    """It would take the packets from a second tap, which stamps what was handed over."""
    with pytest.raises(InputError, match=f"leave :{forward} out, or @receipt"):
        parse_link(f"x@receipt:{forward}")


_WORD = st.sampled_from(["x", "drop", "eth0.7", "a-b", "tt-1"])
_LINK = st.builds(
    TapLink, _WORD, _WORD, st.none() | _WORD, st.sampled_from([At.INGRESS, At.EGRESS])
)


@given(_LINK, st.none() | _WORD, st.booleans())
def test_a_link_is_read_as_it_was_written(link: TapLink, onward: str | None, absorb: bool) -> None:
    if onward == link.interface or (absorb and onward):
        onward = None
    link = replace(link, onward=onward, absorb=absorb)
    assert parse_link(str(link)) == link
    listening = TapLink(link.name, link.interface, link.namespace, At.RECEIPT)
    assert parse_link(str(listening)) == listening


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(InputError, match="nothing leads out"):
        parse_links([f"{name}=eth0"], "out/{link}.stamps")


def test_hashes_are_said_once_for_all_or_for_a_link() -> None:
    links = [TapLink("a", "x"), TapLink("b", "y")]
    found = with_hashes(links, ["packet-nat", "b=ip.id"])
    assert [link.hash for link in found] == ["packet-nat", "ip.id"]
    assert found[1].words() == ["b=y", "--hash", "b=ip.id"]
    assert with_hashes(links, []) == links
    for wrong, said in (
        (["c=packet"], "the links are a, b"),
        (["packet", "packet-nat"], "said twice"),
        (["a=packet", "a=packet"], "said twice"),
        (["a=nonsense"], "hash: 'nonsense' is not a key"),
    ):
        with pytest.raises(InputError, match=said):
            with_hashes(links, wrong)


def test_sides_are_said_by_name() -> None:
    links = [TapLink("a", "x"), TapLink("b", "y")]
    found = with_sides(links, ["b"])
    assert [link.behind for link in found] == [False, True]
    assert [link.behind for link in with_sides(links, [])] == [None, None]
    assert found[1].words() == ["b=y", "--behind", "b"]
    with pytest.raises(InputError, match="the links are a, b"):
        with_sides(links, ["c"])
    assert all(len(parse_link(f"x{at}").stamped()) > 20 for at in ("", "@egress", "@receipt"))


HARDWARE = ("hardware-transmit", "hardware-receive", "hardware-raw-clock")
SOFTWARE = ("software-transmit", "software-receive", "software-system-clock")
PTP_L4 = ("ptpv1-l4-sync", "ptpv1-l4-delay-req")


@dataclass(frozen=True)
class Card:
    """What a card answers, and what is to be concluded."""

    driver: str
    filters: tuple[str, ...]
    metadata: bool
    method: str | None
    capabilities: tuple[str, ...] = (*HARDWARE, *SOFTWARE)
    clock: int | None = 0


CARDS = {
    # ixgbe_get_ts_info, ixgbe_mac_82599EB; no xdp_metadata_ops.
    "X520": Card("ixgbe", ("none", *PTP_L4, "ptpv2-event"), False, None),
    # ixgbe_get_ts_info, ixgbe_mac_X550.
    "X550": Card("ixgbe", ("none", "all"), False, "messages"),
    # i40e_get_ts_info with I40E_HW_CAP_PTP_L4.
    "X710": Card(
        "i40e",
        (
            *("none", *PTP_L4, "ptpv2-l4-event", "ptpv2-l4-sync", "ptpv2-l4-delay-req"),
            *("ptpv2-l2-event", "ptpv2-l2-sync", "ptpv2-l2-delay-req"),
            *("ptpv2-event", "ptpv2-sync", "ptpv2-delay-req"),
        ),
        False,
        None,
    ),
    # ice_get_ts_info with ICE_FLAG_PTP; ice_xdp_md_ops.
    "E810": Card("ice", ("none", "all"), True, "metadata"),
    # ice_get_ts_info without it, as with old firmware or in a virtual function.
    "E810 without PTP": Card("ice", ("none",), True, None, SOFTWARE, None),
    # igc_ethtool_get_ts_info, igc_i225; igc_xdp_metadata_ops.
    "I225": Card("igc", ("none", "all"), True, "metadata"),
    # mlx5e_ethtool_get_ts_info; mlx5e_xdp_metadata_ops.
    "ConnectX": Card("mlx5_core", ("none", "all"), True, "metadata"),
    # The same before Linux 6.3, which has no metadata.
    "ConnectX, Linux 6.1": Card("mlx5_core", ("none", "all"), False, "messages"),
    # AWS's ena and Google's gve stamp what they receive, and report no clock of their own.
    "ENA": Card("ena", ("none", "all"), False, "messages", (*SOFTWARE, "hardware-receive"), 0),
    "gVNIC": Card("gve", ("none", "all"), False, "messages", (*SOFTWARE, "hardware-receive"), None),
    # veth has xmo_rx_timestamp, but nothing that would stamp.
    "veth": Card("veth", (), True, None, SOFTWARE, None),
}
KERNEL_NAMES = {"all": "HWTSTAMP_FILTER_ALL", "none": "HWTSTAMP_FILTER_NONE"}


def told(card: Card, *, style: str) -> str:
    """The answer as versions of ethtool print it."""

    def word(name: str) -> str:
        return f"\t{name:21} ({KERNEL_NAMES.get(name, 'NAME')})" if style == "old" else f"\t{name}"

    lines = ["Time stamping parameters for eth0:", "Capabilities:", *map(word, card.capabilities)]
    if card.clock is None:
        lines.append("PTP Hardware Clock: none")
    elif style == "new":
        lines.append(f"Hardware timestamp provider index: {card.clock}")
        lines.append("Hardware timestamp provider qualifier: Precise (IEEE 1588 quality)")
    else:
        lines.append(f"PTP Hardware Clock: {card.clock}")
    if card.filters:
        lines += ["Hardware Transmit Timestamp Modes:", word("off"), word("on")]
        lines += ["Hardware Receive Filter Modes:", *map(word, card.filters)]
    else:
        lines += ["Hardware Transmit Timestamp Modes: none", "Hardware Receive Filter Modes: none"]
    return "\n".join(lines) + "\n"


def answer(card: Card, style: str = "6.1") -> Timestamping:
    return parse("eth0", told(card, style=style), driver=card.driver, metadata=card.metadata)


@pytest.mark.parametrize("style", ["old", "6.1", "new"])
@pytest.mark.parametrize("name", CARDS)
def test_every_version_of_ethtool_is_understood(name: str, style: str) -> None:
    card, found = CARDS[name], answer(CARDS[name], style)
    assert found.capabilities == set(card.capabilities)
    assert (found.filters, found.clock) == (card.filters, card.clock)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_stamps_everything_or_is_refused(name: str) -> None:
    card = CARDS[name]
    verdict = judge(answer(card))
    assert verdict.method == card.method
    assert verdict.is_known == (name not in ("ENA", "gVNIC"))
    if card.method is None or not verdict.is_known:
        assert card.driver in verdict.reason
    else:
        assert verdict.reason.startswith("stamps every received packet")
        assert verdict.reason.endswith("its clock is /dev/ptp0")


def test_a_card_that_only_trying_tells_of_is_tried() -> None:
    verdict = judge(answer(CARDS["gVNIC"]))
    assert verdict.reason == (
        "not known whether it stamps: its driver gve has the receive filter `all`, and does not "
        "say hardware-raw-clock"
    )
    link = {"file": "x", "seen": 3, "lost": 0, "other": 0, "interface": "eth0", "clock": "hardware",
            "warnings": []}  # fmt: skip
    told = of_core({name: {**link, "stored": stored, "unstamped": 3 - stored}
                    for name, stored in (("all", 3), ("some", 1), ("none", 0))})  # fmt: skip
    require_stamps(told["all"])
    require_stamps(told["some"])
    with pytest.raises(MachineError, match="eth0 stamps no packet in hardware: 3 came"):
        require_stamps(told["none"])
    with pytest.raises(MachineError, match="clock of p0 and of p1 has no device"):
        require_clocks(cards("gVNIC", "gVNIC", clocks=(None, None)))


def test_reasons_name_what_is_missing() -> None:
    assert judge(answer(CARDS["X520"])).reason == (
        "its driver ixgbe has no receive filter `all`, it stamps ptpv1-l4-sync, "
        "ptpv1-l4-delay-req, ptpv2-event only"
    )
    assert judge(answer(CARDS["veth"])).reason == (
        "its driver veth stamps in software only (no hardware-receive)"
    )


def test_clocks_that_differ_are_told() -> None:
    assert differing({"ingress": 0, "egress": 0}) == {}
    assert differing({}) == {}
    doubts = differing({"ingress": 0, "egress": None, "third": 1})
    assert list(doubts) == ["egress"]
    assert "not known to be that of ingress" in doubts["egress"]
    # Two clocks that are not known are not known to be one.
    assert list(differing({"ingress": None, "egress": None})) == ["egress"]


def cards(*names: str, clocks: tuple[int | None, int | None] = (3, 3)) -> dict[str, Timestamping]:
    """What two cards of these types answer that have these clocks."""
    return {
        f"p{place}": replace(answer(CARDS[name]), clock=clock)
        for place, (name, clock) in enumerate(zip(names, clocks, strict=True))
    }


def test_cards_of_one_clock_and_of_two_can_stamp_a_run() -> None:
    require_clocks(cards("E810", "E810"))
    require_clocks(cards("X550", "X550", clocks=(0, 1)))


@pytest.mark.parametrize(
    ("names", "clocks", "said"),
    [
        (("E810", "X710"), (3, 3), "p1 cannot stamp every received packet: its driver i40e has no"),
        (("veth", "veth"), (None, None), "p0 cannot stamp every received packet: its driver veth"),
        (("E810", "E810"), (0, None), "the clock of p1 has no device"),
    ],
)
def test_other_cards_are_refused_before_a_run(
    names: tuple[str, str], clocks: tuple[int | None, int | None], said: str
) -> None:
    with pytest.raises(MachineError) as caught:
        require_clocks(cards(*names, clocks=clocks))
    assert said in str(caught.value)
    assert str(caught.value).endswith("or tap.clock: monotonic")
    assert "\n" not in str(caught.value)
