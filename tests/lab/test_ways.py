"""Ports that are reached through a macvlan or a bridge: packets pass these, and nothing stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from labtools import Machine, all_came, measured

from tailtap.base.errors import MachineError
from tailtap.host.changes.clean import KINDS
from tailtap.host.net import namespaces
from tailtap.host.net.namespaces import Reached, ports, require_way
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.graphs import DUT_EGRESS, DUT_INGRESS
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.numbering import over_ways
from tailtap.remote.local import NamespaceHost

EXPERIMENT = """\
name: ways
dut: {platform: crun, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 1 kpkt/s, duration: 200 ms, warm_up: 0 s, cpu: 0, slip_limit: 1 s}
cases:
- {dut.over: macvlan, dut.forwarder: kernel-route, dut.line: 1}
- {dut.over: bridge, dut.forwarder: tc-mirred, dut.line: 1}
"""


def test_packets_come_through_each_way(machine: Machine, tmp_path: Path) -> None:
    made = measured(tmp_path, EXPERIMENT, machine=machine)
    assert machine.tailtap("clean").stdout == "nothing to remove\n"
    assert len(made.runs) == 2
    for run, told in zip(made.runs, made.records, strict=True):
        assert all_came(run, 200)
        ways = [link.get("way") for link in told["links"]]
        over = told["parameters"]["dut"]["over"]
        assert ways == [
            None if "dut" not in "".join(link["ends"]) else over for link in told["links"]
        ]
        assert over in ways


def there(way: str) -> bool:
    """Whether this machine can make it."""
    try:
        require_way(way)
    except MachineError:
        return False
    return True


@pytest.mark.parametrize("way", namespaces.TRIALS)
def test_the_port_lies_upon_the_end_of_its_link(way: str) -> None:
    if way == namespaces.NETKIT and not there(way):
        pytest.skip("needs a kernel with netkit and iproute2 6.7 or newer")
    kind = PLATFORMS["bare-metal"]
    devices = alike(kind, DutSpec((1,), kind.Options()))
    with Lab(over_ways(graph_of(devices), way)) as lab:
        [device] = build(lab, devices)
        lab.wait_until_up()
        links = {
            row["ifname"]: row
            for row in json.loads(device.host.run(["ip", "-d", "-j", "link"]).stdout)
        }
        assert {*links} == {"lo", DUT_INGRESS, DUT_EGRESS}
        made = {links[port]["linkinfo"]["info_kind"] for port in (DUT_INGRESS, DUT_EGRESS)}
        assert made == {"veth" if way == "bridge" else way}
        below = lab.name_of("below")
        lower = [name for name in ports(below) if name.startswith("tt-l") and name[4:].isdigit()]
        assert len(lower) == 2
        # The device's work for what comes in begins there, on the device's core.
        files = "cat /sys/class/net/tt-l*/queues/rx-0/rps_cpus"
        masks = NamespaceHost(below).run(["sh", "-c", files]).stdout.split()
        assert sum(int(mask.replace(",", ""), 16) == 2 for mask in masks) == 1
        namespace = lab.name_of("dut")
        resource = Reached(way, below, sorted(lower)[0], namespace, DUT_INGRESS, 0, 1500)
        assert KINDS["reached"].parse(resource.as_json()).read()
    assert not resource.read()


def test_what_this_kernel_cannot_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for way in (namespaces.MACVLAN, namespaces.BRIDGE):
        require_way(way)
    monkeypatch.setitem(namespaces.TRIALS, "macvlan", "ip link add tt-1 type tt-none")
    with pytest.raises(MachineError, match=r"this kernel makes none .*CONFIG_MACVLAN"):
        require_way("macvlan")
    monkeypatch.setitem(namespaces.TRIALS, "netkit", "ip link add tt-1 type tt-none mode l2")
    with pytest.raises(MachineError, match=r"needs iproute2 6\.7 or newer .* CONFIG_NETKIT"):
        require_way("netkit")
