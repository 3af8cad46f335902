"""How much room the taps of flows have in the kernel, and what `tailtap tap` is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError
from tailtap.lab.instruments.taps import Stamped
from tailtap.lab.instruments.taps.inline import LEAST_ROOM, MAX_ROOM, QUIET_SHARE, rooms
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
