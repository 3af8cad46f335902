"""What forwarders are told: routes, rules, configurations, logical cores."""

from __future__ import annotations

import hashlib
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import yaml
from pydantic import ValidationError

from tailtap.base.errors import InputError, MachineError
from tailtap.base.proc import parse_stat
from tailtap.base.schema import check_command, fill_in
from tailtap.experiment.reading import read_experiment
from tailtap.lab.forwarders import Setting, ovs, routing
from tailtap.lab.forwarders.dpdk_examples import (
    DRAIN,
    ExampleOptions,
    L3fwdOptions,
    built,
    routes,
)
from tailtap.lab.forwarders.rules import read_rules, read_set
from tailtap.lab.forwarders.setting import cpu_time
from tailtap.lab.forwarders.suricata import (
    EVALUATED,
    LONGEST,
    MANY,
    SuricataOptions,
    common,
    many_rules,
    rejected_rules,
    with_rules,
)
from tailtap.lab.generators.flows import Flows
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import Dut
from tailtap.lab.topology.graphs import FORWARD, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.remote import Completed
from tailtap.remote.local import LocalHost


def test_l3fwd_gets_a_route_for_every_address_of_the_flows() -> None:
    flows = [Flows(src="10.0.0.1", dst="10.1.0.0-10.1.0.5").ranges(4)]
    assert list(routes(flows, [], 4, 4)) == ["R10.1.0.0/30 1", "R10.1.0.4/31 1", "R10.0.0.1/32 0"]
    assert list(routes(flows, [], 4, 6)) == ["R2001:db8::/32 1"]


def test_a_core_for_each_port_of_l3fwd_needs_cards() -> None:
    assert L3fwdOptions(driver="vfio-pci", cpu_per_port=True).cpu_per_port
    with pytest.raises(ValidationError, match="take driver vfio-pci"):
        L3fwdOptions(cpu_per_port=True)


def test_what_comes_in_at_the_other_port_leaves_by_the_first() -> None:
    there, back = ([Flows(dst=f"198.19.0.{number}").ranges(4)] for number in (1, 2))
    assert list(routes(there, back, 4, 4)) == [
        "R198.19.0.1/32 1",
        "R198.19.0.2/32 0",
        "R10.0.0.1/32 0",
    ]


def test_a_destination_that_is_a_source_too_is_a_destination() -> None:
    flows = [Flows(src="10.0.0.1", dst="10.0.0.1").ranges(4)]
    assert list(routes(flows, [], 4, 4)) == ["R10.0.0.1/32 1"]


def test_a_program_without_an_option_for_its_drain_time_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "dpdk-l2fwd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    need = replace(built("dpdk-l2fwd"), program=str(program))
    with pytest.raises(MachineError, match=r"no option for its drain time.*`make forwarders`"):
        need.find(LocalHost())
    program.write_text(f"#!/bin/sh\necho ${DRAIN}\n")
    assert need.find(LocalHost()) == str(program)


def test_packets_are_kept_back_for_a_second_at_most() -> None:
    assert ExampleOptions.model_validate({}).drain == 0
    assert ExampleOptions.model_validate({"drain": "100 us"}).drain == 100_000
    with pytest.raises(ValidationError, match="1 s at most"):
        ExampleOptions.model_validate({"drain": "1001 ms"})


def test_what_our_rules_look_for_fits_into_the_smallest_payload() -> None:
    contents = [match[1] for rule in many_rules() if (match := re.search('content:"(.*?)"', rule))]
    assert len(set(contents)) == MANY - EVALUATED
    assert {len(content) for content in contents} == {LONGEST}
    patterns = [match[1] for rule in many_rules() if (match := re.search('pcre:"/(.*?)/"', rule))]
    assert len(set(patterns)) == EVALUATED
    for pattern in patterns:
        assert re.fullmatch(pattern, pattern.replace("[a-z]", "x"))
        assert len(pattern.replace("[a-z]", "x")) == LONGEST


@pytest.mark.parametrize(
    ("traffic", "has", "needs"),
    [
        ({"size": "71 B", "ip": 6}, "71 B have 5", "74 B"),
        ({"size": "imix", "ip": 6}, "71 B have 5", "74 B"),
        ({"size": "1518 B, 77 B", "ip": 6, "vlan": 7}, "77 B have 7", "78 B"),
    ],
)
def test_packets_too_short_for_our_rules_are_refused_before_anything_is_made(
    traffic: dict[str, object], has: str, needs: str, tmp_path: Path
) -> None:
    content = {"name": "x", "dut": {"forwarder": {"suricata": {"rules": "many"}}}}
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(content | {"traffic": traffic}, sort_keys=False))
    with pytest.raises(InputError) as caught:
        read_experiment(path)
    assert "experiment.yaml:5: dut.forwarder.suricata.rules: " in str(caught.value)
    assert has in str(caught.value)
    assert f"use a traffic.size of {needs} or more" in str(caught.value)
    path.write_text(path.read_text().replace("many", "none"))
    read_experiment(path)
    path.write_text(path.read_text().replace("none", "many").replace("ip: 6", "ip: 4"))
    read_experiment(path)


def test_a_manager_has_the_first_cpu_for_itself() -> None:
    for mode in ("af_packet", "dpdk"):
        managing, working = common(mode, (1, 2, 3), Path("/work"), manager=True)["threading"][
            "cpu-affinity"
        ]
        assert managing["management-cpu-set"]["cpu"] == [1]
        assert working["worker-cpu-set"]["cpu"] == [2, 3]


def test_groups_of_ones_own_are_added_and_others_replaced() -> None:
    files = ["0000-a.rules", "0001-classification.config", "0002-b.rules"]
    made = with_rules(Path("/work"), files, {"HOME_NET": "10.0.0.0/8", "OWN_PORTS": "53"})
    assert made["rule-files"] == ["0000-a.rules", "0002-b.rules"]
    assert made["classification-file"] == "/work/0001-classification.config"
    addresses, ports = (made["vars"][name] for name in ("address-groups", "port-groups"))
    assert (addresses["HOME_NET"], addresses["HTTP_SERVERS"]) == ("10.0.0.0/8", "$HOME_NET")
    assert (ports["OWN_PORTS"], ports["HTTP_PORTS"]) == ("53", "80")


def test_all_groups_of_suricatas_own_configuration_are_known() -> None:
    own = Path("/etc/suricata/suricata.yaml")
    if not own.exists():
        pytest.skip("Suricata is not installed")
    groups = yaml.safe_load(own.read_text())["vars"]
    made = with_rules(Path("/work"), [], {})["vars"]
    for kind in ("address-groups", "port-groups"):
        assert set(groups[kind]) <= set(made[kind])


def test_a_set_of_rules_is_the_same_from_a_folder_and_from_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "in").mkdir(parents=True)
    (folder / "a.rules").write_bytes(b"one \xff\n")
    (folder / "in/b.rules").write_bytes(b"two\n")
    (folder / "x.config").write_bytes(b"three\n")
    (folder / "sid-msg.map").write_bytes(b"left out\n")
    (folder / "away.rules").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match=r"away\.rules: cannot read these rules"):
        read_set([str(folder)])
    (folder / "away.rules").unlink()
    archive = tmp_path / "set.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("a.rules", "in/b.rules", "x.config", "sid-msg.map"):
            packed.add(folder / name, name)
    found, _ = read_set([str(folder)])
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert read_set([str(archive)], digest) == (found, digest)
    expected = ["one \udcff\n", "two\n", "three\n"]
    assert list(found.values()) == expected
    assert list(read_set([str(folder), str(folder / "a.rules")])[0].values()) == [
        *expected,
        expected[0],
    ]
    with pytest.raises(InputError, match="these are other rules"):
        read_set([str(archive)], "0" * 64)
    with pytest.raises(InputError, match="cannot read these rules"):
        read_rules(tmp_path / "missing")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rules": "/no/such"}, "there is no file"),
        ({"rules": ["/no/such"]}, "there is no file"),
        ({"sha256": "0" * 64}, "name one in rules"),
        ({"sha256": "abc"}, "64 digits"),
        ({"rejected": "200 %"}, "more than everything"),
    ],
)
def test_options_of_suricata_that_make_no_sense(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SuricataOptions.model_validate(options)


def test_rejected_rules_are_named_by_their_ids() -> None:
    log = [
        "E: detect-parse: no rule options.",
        'E: detect: error parsing signature "alert udp any (sid:2;)" from file /a at line 2',
        'E: detect: error parsing signature "alert what is this" from file /a at line 3',
    ]
    assert rejected_rules(log) == ["sid 2", "alert what is this"]


def test_what_each_rule_counted() -> None:
    told = """\
NXST_FLOW reply (xid=0x4):
 cookie=0x0, duration=3.043s, table=0, n_packets=3, n_bytes=250, idle_age=1, udp,tp_dst=9 actions=drop
 cookie=0x0, duration=3.0s, table=0, n_packets=7, n_bytes=9, idle_age=2, hard_age=1, priority=1,in_port=2 actions=output:1
netdev@ovs-netdev: hit:9 missed:1
"""  # noqa: E501
    assert ovs.counted(told) == {
        "rule_packets": [
            {"rule": "udp,tp_dst=9 actions=drop", "packets": 3},
            {"rule": "priority=1,in_port=2 actions=output:1", "packets": 7},
        ],
        "lookups": {"hit": 9, "missed": 1},
    }
    listed = """\
table inet fw {
	chain forward {
		udp dport 9 counter packets 5 bytes 99 drop
		iifname "a" accept
		meta l4proto udp flow add @fast counter packets 1 bytes 46
"""
    assert routing.counted(listed) == [
        {"rule": "udp dport 9 drop", "packets": 5},
        {"rule": "meta l4proto udp flow add @fast", "packets": 1},
    ]


def test_open_vswitch_sends_each_way_by_its_ports() -> None:
    dut = Dut(LocalHost(), (("a", "b"), ("b", "a"), ("c", "b")), (1,))
    assert ovs.openflow(dut, None).splitlines() == [
        "in_port=1,actions=output:2",
        "in_port=2,actions=output:1",
        "in_port=3,actions=output:2",
    ]


def test_values_stay_within_their_word() -> None:
    command = check_command("run '{ingress} and more' --to={egress} {{x}}", ["ingress", "egress"])
    values = {"ingress": "a b", "egress": "'c"}
    assert fill_in(command, values) == ["run", "a b and more", "--to='c", "{x}"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("x {port}", "{port} stands for nothing: known are {ingress}"),
        ("x {ingress:d}", "{ingress} has no formats: write the name alone"),
        ("x {ingress!r}", "{ingress} has no formats: write the name alone"),
        ("x 'y", "is no command"),
        ("", "an empty command does nothing"),
        ("x {", "is no template"),
    ],
)
def test_templates_that_are_no_commands(template: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_command(template, ["ingress"])
    assert said in str(caught.value)


def test_cpu_times_are_those_of_the_kernel() -> None:
    stat = parse_stat("12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100")
    assert stat is not None
    assert stat[:4] == (12, "a (b) c", "S", 1)
    assert cpu_time(stat) == {"user": 2_500_000_000, "system": 500_000_000}
    assert parse_stat("") is None


def test_a_kernel_without_rules_is_quoted() -> None:
    said = Completed("", "not known\nCommand failed -:3\n", 1)
    dut = Dut(mock.Mock(run=lambda *_, **__: said), (("tt-in", "tt-out"),), (1,))
    lab = Lab(smallest("namespace", (1,)))
    with pytest.raises(MachineError, match=r"cannot route by port .*: not known Command failed"):
        routing.KernelRoute().start(
            dut,
            routing.KernelRoute.Options(),
            Setting(lab, Path(), {FORWARD: Traffic()}, "port"),
        )
