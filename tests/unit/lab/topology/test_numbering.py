"""Addresses of lines and graphs: unique, the same each time, and as neighbours need them."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError
from tailtap.lab.topology.graph import Graph, Link, Node, Port
from tailtap.lab.topology.graphs import dut_names, share_out, smallest
from tailtap.lab.topology.numbering import BEHIND, MOST_LINKS, numbered
from tailtap.lab.topology.placement import Placement

LINK_LOCAL_V4, LINK_LOCAL_V6 = IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10")


def line(length: int, *, both_ways: bool = False) -> Graph:
    placement = Placement((1,))
    return smallest("namespace", (1,), length=length, both_ways=both_ways, placement=placement)


@cases(20)  # up to 100 nodes each
@given(st.integers(1, 100), st.booleans())
def test_every_inner_port_of_a_line_has_addresses_of_its_own(length: int, both_ways: bool) -> None:
    graph = line(length, both_ways=both_ways)
    addresses = numbered(graph)
    assert numbered(graph) == addresses
    inner = {
        port for port in graph.ports if {port.node, graph.peer(port).node} <= set(dut_names(length))
    }
    assert set(addresses) == inner
    assert len(inner) == 2 * (length - 1)
    assert len({one.mac for one in addresses.values()}) == len(addresses)
    for version in (4, 6):
        found = {one.ip(version) for one in addresses.values()}
        assert len(found) == len(addresses)
        assert BEHIND[version] not in found
    for port, one in addresses.items():
        assert one.v4 in LINK_LOCAL_V4
        assert one.v6 in LINK_LOCAL_V6
        # No bit says that it is a group's or a vendor's.
        assert int(one.mac[:2], 16) & 3 == 2
        # The two ends of a link differ in their last bit: they are a network of two (RFC 3021).
        peer = addresses[graph.peer(port)]
        assert int(one.v4) ^ int(peer.v4) == 1
        assert int(one.v6) ^ int(peer.v6) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=80, unique=True), st.integers(1, 64))
def test_the_nodes_of_a_line_share_the_cpus_out(cpus: list[int], length: int) -> None:
    shares = share_out(tuple(cpus), length)
    assert len(shares) == length
    if length > len(cpus):
        assert set(shares) == {tuple(cpus)}
    else:
        assert [cpu for share in shares for cpu in share] == cpus
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_device_has_no_addresses_but_those_of_the_generator() -> None:
    assert numbered(line(1)) == {}


def test_more_links_than_addresses_are_refused() -> None:
    nodes = (Node("a", "dut"), Node("b", "dut"))
    links = tuple(
        Link((Port("a", f"p{n}"), Port("b", f"p{n}")), 1500) for n in range(MOST_LINKS + 1)
    )
    with pytest.raises(InputError, match="too many"):
        numbered(Graph(nodes, links, ()))
