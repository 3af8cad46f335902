"""What forwarders are told: routes, rules, configurations, logical cores."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tailtap.forwarder import dpdk
from tailtap.forwarder.dpdk_l3fwd import routes
from tailtap.forwarder.program import parse_cpu_time
from tailtap.forwarder.suricata import MANY, af_packet_mode, common, dpdk_mode, many_rules, render
from tailtap.host.local import LocalHost
from tailtap.platform import Dut
from tailtap.template import check_command, fill_in
from tailtap.traffic.flows import Flows
from tailtap.traffic.model import Traffic


def test_l3fwd_gets_a_route_for_every_address_of_the_flows() -> None:
    traffic = Traffic(flows=Flows(src="10.0.0.1", dst="10.1.0.0-10.1.0.5"))
    assert list(routes(traffic, 4)) == ["R10.1.0.0/30 1", "R10.1.0.4/31 1", "R10.0.0.1/32 0"]
    assert list(routes(traffic, 6)) == ["R2001:db8::/32 1"]


def test_a_destination_that_is_a_source_too_is_a_destination() -> None:
    traffic = Traffic(flows=Flows(src="10.0.0.1", dst="10.0.0.1"))
    assert list(routes(traffic, 4)) == ["R10.0.0.1/32 1"]


def test_logical_cores_lie_on_the_cpus_of_the_dut() -> None:
    assert dpdk.lcores([3, 5]) == ["--lcores", "0@3,1@5"]
    assert dpdk.lcores([3, 5], idle_main=True) == ["--lcores", "0@3,1@3,2@5"]


def test_our_rules_are_many_and_one_drops() -> None:
    rules = list(many_rules())
    assert len(rules) == MANY + 1
    assert sum(rule.startswith("drop ") for rule in rules) == 1
    ids = {rule.rpartition("sid:")[2] for rule in rules}
    assert len(ids) == len(rules)


def test_suricatas_configuration_is_what_it_was_made_from() -> None:
    dut = Dut(LocalHost(), "in", "out", (1,))
    content = common("af_packet", dut.cpus, Path("/work")) | af_packet_mode(dut)
    text = render(content)
    assert text.startswith("%YAML 1.1\n---\n")
    read = yaml.safe_load(text)
    pairs = [(port["interface"], port["copy-iface"]) for port in read["af-packet"]]
    assert pairs == [("in", "out"), ("out", "in")]
    assert {port["copy-mode"] for port in read["af-packet"]} == {"ips"}
    assert read["threading"]["cpu-affinity"][1]["worker-cpu-set"]["cpu"] == [1]


def test_suricatas_dpdk_gets_the_same_options_as_a_command_line() -> None:
    devices = [("--vdev", "net_x0,iface=in"), ("--vdev", "net_x1,iface=out")]
    ports = dpdk.Ports(["-v", "-m", "64", "--no-huge"], devices, ["net_x0", "net_x1"], {})
    content = dpdk_mode(ports, 1500)["dpdk"]
    assert content["eal-params"] == {
        "v": "",
        "m": "64",
        "no-huge": "",
        "vdev": ["net_x0,iface=in", "net_x1,iface=out"],
    }
    assert [port["interface"] for port in content["interfaces"]] == ["net_x1", "net_x0"]


def test_values_stay_within_their_word() -> None:
    command = check_command("run '{ingress} and more' --to={egress} {{x}}", ["ingress", "egress"])
    values = {"ingress": "a b", "egress": "'c"}
    assert fill_in(command, values) == ["run", "a b and more", "--to='c", "{x}"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("x {port}", "{port} stands for nothing: known are {ingress}"),
        ("x 'y", "is no command"),
        ("", "an empty command does nothing"),
        ("x {", "is no command"),
    ],
)
def test_templates_that_are_no_commands(template: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_command(template, ["ingress"])
    assert said in str(caught.value)


def test_cpu_times_are_those_of_the_kernel() -> None:
    stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100"
    assert parse_cpu_time(stat) == {"user": 2_500_000_000, "system": 500_000_000}
    assert parse_cpu_time("") is None
