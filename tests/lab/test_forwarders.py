"""Every forwarder carries every packet, and says what is wrong when it cannot."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from forwarders import require
from labtools import (
    Machine,
    ids_of,
    processes,
    ran,
    record,
    statuses,
    wait_for,
    write_experiment,
)
from program import TAILTAP
from uprobes import counted_calls

from tailtap.analysis.evaluation import Evaluation
from tailtap.lab.forwarders import FORWARDERS as KNOWN
from tailtap.lab.forwarders.suricata import EVALUATED, SURICATA
from tailtap.remote.local import LocalHost

PACKETS = 1_000
TRAFFIC = "traffic: {rate: 2 kpkt/s, duration: 0.5 s, warm_up: 100 ms, cpu: 0}"
FORWARDERS: dict[str, tuple[str, str, Sequence[int]]] = {
    # forwarder, its options, the DuT's CPUs
    "tc-mirred": ("tc-mirred", "{}", [1]),
    "kernel-route": ("kernel-route", "{}", [1]),
    "bridge": ("bridge", "{}", [1]),
    "nftables": ("nftables", "{rules: %(rules)s}", [1]),
    "xdp": ("xdp", "{}", [1]),
    "testpmd": ("testpmd", "{}", [1]),
    "testpmd-mac": ("testpmd", "{mode: mac, huge_pages: false}", [1]),
    "testpmd-af_xdp": ("testpmd", "{driver: af_xdp, busy_budget: 32}", [1]),
    "dpdk-l2fwd": ("dpdk-l2fwd", "{}", [1]),
    "dpdk-l3fwd": ("dpdk-l3fwd", "{}", [1]),
    "ovs": ("ovs", "{}", [1]),
    "ovs-dpdk": ("ovs-dpdk", "{huge_pages: false}", [1]),
    "suricata": ("suricata", "{}", [1]),
    "suricata-dpdk": ("suricata", "{mode: dpdk}", [0, 1]),
    "suricata-dpdk-af_xdp": ("suricata", "{mode: dpdk, driver: af_xdp}", [0, 1]),
    "external": (
        "external",
        "{command: '%(tailtap)s forward {ingress} {egress} --cpu {cpu}'}",
        [1],
    ),
}
CANARIES = ("xdp", "testpmd-af_xdp", "external")
"""CI has one of each mechanism here, those with rules as they drop packets, and all in a container
that they share (`test_matrix`)."""
DESTINATION = bytes.fromhex("027474000002")
NEXT_HOP = bytes.fromhex("027474000003")
TIME_TO_LIVE = 22
ROUTERS = ("kernel-route", "nftables", "dpdk-l3fwd")
IN_KERNEL = [name for name, kind in KNOWN.items() if kind.in_kernel]
NEW_ADDRESSES = (*ROUTERS, "testpmd-mac")
"""Where hardware addresses change to those that we said."""
SNIFFER = """
import socket
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
port.bind(("tt-b0", 0))
print("listening", flush=True)
while True:
    frame, address = port.recvfrom(2048)
    if address[2] != socket.PACKET_OUTGOING and frame[12:14] == b"\\x08\\x00":
        print(frame.hex(), flush=True)
        break
"""
"""Prints the first IPv4 frame that leaves the DuT."""
NFT = """\
table inet fw {{
  chain forward {{
    type filter hook forward priority filter; policy drop;
    iifname $ingress oifname $egress udp dport 54 counter {verdict}
    iifname $ingress oifname $egress counter accept
  }}
}}
"""
"""A firewall that lets pass what goes from one port to the other, or all of it but UDP port 54."""
OPENFLOW = "udp,tp_dst=54,actions=drop\npriority=1,in_port=1,actions=output:2\n"
SURICATA_SET = {
    "one.rules": """\
alert http $EXTERNAL_NET any -> $HTTP_SERVERS $HTTP_PORTS (msg:"a"; content:"a"; sid:7000001;)
drop udp $EXTERNAL_NET any -> $DNS_SERVERS 54 (msg:"b"; sid:7000002; classtype:tt-own;)
alert tcp $HOME_NET any -> !$HOME_NET any (msg:"nobody is outside of any"; sid:7000003;)
""",
    "more/two.rules": """\
alert dnp3 any any -> any $DNP3_PORTS (msg:"c"; app-layer-event:dnp3.flooded; sid:7000004;)
alert tcp $AIM_SERVERS any -> $MISSING any (msg:"no such group"; sid:7000005;)
# alert udp any any -> any any (msg:"not in use"; sid:7000006;)
alert udp any any -> $HOME_NET $OWN_PORTS (msg:"d"; content:"tt"; sid:7000007;)
""",
    "classification.config": "config classification: tt-own,Ours,1\n",
}
"""A set of rules of the form that sets have: files, groups, classes of its own, broken ones."""
RULE = "DetectPcrePayloadMatch"
"""What Suricata calls to evaluate a rule with a regular expression for a packet."""
SEARCH = "SCHSSearch"
"""What it calls to look for the contents of all rules at once."""


def experiment(forwarder: str, options: str = "{}", cpus: Sequence[int] = (1,)) -> str:
    dut = f"dut: {{forwarder: {forwarder}, cpus: {list(cpus)}, options: {options}}}"
    return f"name: forwarders\n{dut}\n{TRAFFIC}\n"


def run(machine: Machine, folder: Path, text: str) -> tuple[Path, str]:
    made = ran(folder, text, machine=machine)
    return made.run, made.done.stderr


def failure(machine: Machine, folder: Path, text: str) -> str:
    """Why a run failed: one line, in the record and for the user."""
    made, said = run(machine, folder, text)
    error: str = record(made)["error"]
    assert record(made)["status"] == "failed"
    assert "\n" not in error
    assert said.rstrip().splitlines()[-1].endswith(error)
    return error


def run_and_sniff(machine: Machine, folder: Path, text: str) -> tuple[Path, bytes]:
    """The folder of a run that is done, and the first IPv4 frame that left its DuT."""
    out = folder / "out"
    words = ("run", str(write_experiment(folder, text)), "--out", str(out))
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(machine.held(folder, *words, place="probe"))
        [tap] = [name for name in machine.namespaces() if name.endswith("-tap")]
        command = machine.command("ip", "netns", "exec", tap, "python3", "-c", SNIFFER)
        sniffer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(sniffer.wait)
        stack.callback(sniffer.kill)
        assert sniffer.stdout is not None
        assert sniffer.stdout.readline() == "listening\n"
        running.go_on()
        _, said = running.ended()
        [made] = (out / "runs").iterdir()
        assert record(made)["status"] == "done", said
        return made, bytes.fromhex(sniffer.stdout.readline())


def test_all_kinds_are_here() -> None:
    """Others have tests of their own: `test_flows`, and `test_transactions` with NAT."""
    assert {name for name, _, _ in FORWARDERS.values()} | {"fault", "nat", "server"} == set(KNOWN)


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in CANARIES else pytest.mark.slow) for one in FORWARDERS],
)
def test_every_packet_comes_through_in_order(name: str, machine: Machine, tmp_path: Path) -> None:
    forwarder, options, cpus = FORWARDERS[name]
    require(forwarder)
    rules = tmp_path / "all.nft"
    rules.write_text(NFT.format(verdict="accept"))
    text = experiment(forwarder, options % {"tailtap": TAILTAP, "rules": rules}, cpus)
    made, frame = run_and_sniff(machine, tmp_path, text)
    content = record(made)
    assert ids_of(made) == list(range(PACKETS))
    evaluation = Evaluation.load(made / "evaluation")
    assert evaluation.counts.matched == PACKETS
    assert evaluation.counts.reordered == 0
    assert frame[:6] == (NEXT_HOP if name in NEW_ADDRESSES else DESTINATION)
    assert frame[TIME_TO_LIVE] == (63 if forwarder in ROUTERS else 64)
    told = content["forwarder"]
    assert {str(cpu) for cpu in cpus} <= set(content["cpu_ns"])
    if forwarder not in IN_KERNEL:
        assert told["exit_status"] == 0
        # Which of the two it was, the kernel guesses from what its ticks have met. Ours sleeps
        # between packets, and may take less than a tick for all of them.
        assert sum(told["cpu_ns"].values()) > 0 or forwarder == "external"
        assert (made / told["log"]).stat().st_size > 0
    if forwarder == "suricata":
        assert told["version"].startswith("7.")
    if forwarder in ("ovs", "ovs-dpdk"):
        assert told["version"][0].isdigit()
        [rule] = told["rule_packets"]
        assert rule["rule"] == "in_port=1 actions=output:2"
        assert told["lookups"]["hit"] + told["lookups"]["missed"] >= rule["packets"] >= PACKETS
    if forwarder == "bridge":
        assert not told["flood"]
    if "dpdk" in name or forwarder == "testpmd":
        assert told["driver"] in ("af_packet", "af_xdp")
        log = (made / told["log"]).read_text()
        asked = 2 if name == "testpmd-af_xdp" else 0
        assert log.count("Busy polling budget set to: 32") == asked


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpdk-l2fwd", "dpdk-l3fwd"])
def test_packets_wait_for_the_drain_time_only_when_asked_to(
    name: str, machine: Machine, tmp_path: Path
) -> None:
    require(name)
    # AF_XDP has the lower floor. Two packets come further apart than the drain time, and by no
    # multiple of it, so that they wait for anything between nothing and all of it.
    options = f"{{{name}: {{driver: af_xdp}}}}, {{{name}: {{driver: af_xdp, drain: 100 us}}}}"
    text = f"""\
name: drain
dut: {{cpus: [1]}}
traffic: {{rate: 1970 pkt/s, duration: 2 s, warm_up: 100 ms, cpu: 0}}
vary: {{dut.forwarder: [{options}]}}
"""
    made = ran(tmp_path, text, machine=machine)
    assert statuses(made.out) == ["done", "done"], made.done.stderr
    at_once, drained = made.runs
    assert record(at_once)["forwarder"]["drain_ns"] == 0
    assert record(drained)["forwarder"]["drain_ns"] == 100_000
    medians = [
        Evaluation.load(made / "evaluation").percentile(0.5).value for made in (at_once, drained)
    ]
    assert medians[1] > 2 * medians[0]
    assert medians[1] - medians[0] < 100_000


@pytest.mark.parametrize(
    ("rules", "evaluated"), [pytest.param("none", 0, marks=pytest.mark.slow), ("many", EVALUATED)]
)
def test_so_many_rules_are_evaluated_for_every_packet_by_two_workers(
    rules: str, evaluated: int, machine: Machine, tmp_path: Path
) -> None:
    require("suricata")
    suricata = Path(SURICATA.find(LocalHost()))
    # Slowly: counting a call takes longer than the call.
    text = experiment("suricata", f"{{rules: {rules}}}", [0, 1]).replace("2 kpkt/s", "100 pkt/s")
    text = text.replace("warm_up:", "flows: {sport: 1000-1063}, warm_up:")
    with counted_calls(suricata, RULE, SEARCH) as calls:
        made, said = run(machine, tmp_path, text.replace("0.5 s", "2 s"))
    assert record(made)["status"] == "done", said
    told, counts = record(made)["forwarder"], Evaluation.load(made / "evaluation").counts
    assert told.get("rules_evaluated", 0) == evaluated
    assert counts.matched == counts.ingress
    shares = [told["workers"][f"W#0{number}-tt-in"]["packets"] for number in (1, 2)]
    assert min(shares) > counts.ingress / 10
    assert sum(shares) > counts.ingress
    if rules == "none":
        assert calls[RULE] == 0
        return
    packets, rest = divmod(calls[RULE], evaluated)
    assert rest == 0
    assert packets > counts.ingress > 0  # those of the probe and the warm-up have come as well
    assert calls[SEARCH] >= packets


def test_what_rules_drop_is_dropped_and_counted(machine: Machine, tmp_path: Path) -> None:
    for name in ("nftables", "ovs", "suricata"):
        require(name)
    files = {"fw.nft": NFT.format(verdict="drop"), "fw.flows": OPENFLOW,
             "own.rules": 'drop udp any any -> any 54 (msg:"none"; sid:1;)\n'}  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    forwarders = ", ".join(
        f"{{{kind}: {{rules: {tmp_path / file}}}}}"
        for kind, file in zip(("nftables", "ovs", "suricata"), files, strict=True)
    )
    text = f"{experiment('tc-mirred')}vary: {{dut.forwarder: [{forwarders}]}}\n"
    text = text.replace("warm_up:", "flows: {dport: 53-54}, warm_up:")
    made = ran(tmp_path, text, machine=machine)
    assert statuses(made.out) == ["done"] * 3, made.done.stderr
    # Flows take turns: every other packet goes to the port whose packets are dropped.
    assert [ids_of(run) for run in made.runs] == [list(range(0, PACKETS, 2))] * 3
    nft, ovs, suricata = (one["forwarder"] for one in made.records)
    assert suricata["rules_loaded"] == 1
    for told in (nft, ovs):
        drop, rest = sorted(told["rule_packets"], key=lambda row: "drop" not in row["rule"])
        assert "drop" in drop["rule"]
        # Those of the warm-up and the probe are among them.
        assert drop["packets"] >= PACKETS // 2 <= rest["packets"]


@pytest.mark.slow
def test_a_real_set_of_rules_goes_without_those_that_are_broken(
    machine: Machine, tmp_path: Path
) -> None:
    require("suricata")
    folder, archive = tmp_path / "set", tmp_path / "set.tar.gz"
    for name, content in SURICATA_SET.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, "rules")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    options = f"rules: {archive}, sha256: {digest}, vars: {{OWN_PORTS: '53'}}"
    text = experiment("suricata", f"{{{options}, rejected: 40 %, manager: true}}", [0, 1])
    text = text.replace("warm_up:", "flows: {dport: 53-54}, warm_up:")
    made, said = run(machine, tmp_path, text)
    made_of = record(made)
    assert made_of["status"] == "done", said
    assert ids_of(made) == list(range(0, PACKETS, 2))
    told = made_of["forwarder"]
    assert (told["rules_loaded"], told["rules_rejected"]) == (4, 2)
    assert sorted(told["rules_rejected_named"]) == ["sid 7000003", "sid 7000005"]
    assert told["rules_sha256"] == digest
    [warning] = [row for row in made_of["warnings"] if row["code"] == "rules-rejected"]
    assert ", ".join(told["rules_rejected_named"]) in warning["message"]
    # No class is unknown: the archive's own are read.
    assert "classtype" not in (made / told["log"]).read_text()


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize(
    ("kind", "rules", "why"),
    [
        ("nftables", "table inet fw { chain x { udp dport 9 dorp } }\n", "syntax error"),
        ("ovs", "in_port=1,actions=otput:2\n", "unknown action otput"),
        pytest.param(
            "ovs-dpdk",
            "in_port=1,actions=otput:2\n",
            "unknown action otput",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rules_that_are_none_are_refused_before_and_by_a_run(
    kind: str, rules: str, why: str, machine: Machine, tmp_path: Path
) -> None:
    require(kind)
    file = tmp_path / "bad.rules"
    file.write_text(rules)
    text = experiment(kind, f"{{rules: {file}}}")
    error = failure(machine, tmp_path, text)
    assert error.startswith(f"{file}: ") and why in error
    checked = machine.tailtap("run", str(write_experiment(tmp_path, text)), "--check")
    assert checked.returncode == 3
    assert why in checked.stdout + checked.stderr


FAILURES: dict[str, tuple[str, str, Sequence[str]]] = {
    # A forwarder, its options, and of the error its beginning and words in it.
    "rules with an error": (
        "suricata",
        "rules: %(bad)s",
        ["%(bad)s: suricata does not take these rules: ", "at line 2"],
    ),
    "a port without a CPU": ("suricata", "mode: dpdk", ["", "dut.cpus", "af_packet"]),
    "an end at once": (
        "external",
        "command: \"sh -c 'echo first; echo Error: no such card >&2; exit 7'\"",
        ["the forwarder external ended with status 7: Error: no such card"],
    ),
    "nothing comes through": (
        "external",
        "command: \"sh -c 'echo waiting; exec sleep infinity'\", ready: 1 s",
        ["no packet came through the DuT within 1 s: ", " runs and lets nothing through: waiting"],
    ),
    "no such program": (
        "external",
        "command: 'tt-no-such {ingress}'",
        ["", "the program tt-no-such is missing", "check dut.options.command"],
    ),
    "too few huge pages": (
        "testpmd",
        "huge_pages: true, memory: 900000 GiB",
        ["", "huge pages of", "dut.options.huge_pages: false"],
    ),
    "links that are no cards": (
        "testpmd",
        "driver: vfio-pci",
        [
            "dut.options.driver: vfio-pci drives network cards",
            "--set dut.ports=",
            "--set tap.ports=",
        ],
    ),
}


@pytest.mark.usefixtures("huge_pages")
def test_what_is_wrong_with_a_forwarder_is_one_line(machine: Machine, tmp_path: Path) -> None:
    for name in ("suricata", "testpmd"):
        require(name)
    bad = tmp_path / "bad.rules"
    bad.write_text('alert udp any any -> any any (msg:"ok"; sid:1;)\nalert udp any (sid:2;)\n')
    asked = [f"{kind}: {{{options}}}" for kind, options, _ in FAILURES.values()]
    cases = "\n".join(f"- {{dut.forwarder: {{{one}}}}}" for one in asked)
    text = f"{experiment('tc-mirred')}cases:\n{cases}\n".replace("%(bad)s", str(bad))
    made = ran(tmp_path, text.replace(", options: {}", ""), machine=machine)
    assert statuses(made.out) == ["failed"] * len(FAILURES), made.done.stderr
    errors = {name: told["error"] for name, told in zip(FAILURES, made.records, strict=True)}
    for name, (_, _, said) in FAILURES.items():
        first, *more = (words.replace("%(bad)s", str(bad)) for words in said)
        assert errors[name].startswith(first) and "\n" not in errors[name]
        assert all(words in errors[name] for words in more), errors[name]
    log = made.runs[list(FAILURES).index("an end at once")] / "forwarder.log"
    assert log.read_text() == "first\nError: no such card\n"


def test_a_forwarder_that_ends_while_packets_are_sent(machine: Machine, tmp_path: Path) -> None:
    forward = f"{TAILTAP} forward {{ingress}} {{egress}}"
    received = "$(cat /sys/class/net/{ingress}/statistics/rx_packets)"
    until = f"while [ {received} -lt 1000 ]; do sleep 0.1; done"
    command = f"sh -c '{forward} & {until}; echo Error: tired; kill $!'"
    text = experiment("external", f'{{command: "{command}"}}').replace("0.5 s", "10 min")
    error = failure(machine, tmp_path, text)
    assert error.endswith("status 0: Error: tired")


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize("kind", ["testpmd", pytest.param("ovs", marks=pytest.mark.slow)])
def test_clean_removes_what_a_killed_run_left(kind: str, machine: Machine, tmp_path: Path) -> None:
    require(kind)
    pages = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    before = pages.read_text() if pages.exists() else None
    path = write_experiment(tmp_path, experiment(kind))
    with machine.held(tmp_path, "run", str(path), "--out", str(tmp_path / "out")) as running:
        # Others may run on this machine: only this run's journal is in sight of this one.
        known = machine.run("sh", "-c", "cat /var/lib/tailtap/journals/*.journal").stdout
        found = Path("/tmp").glob("tt-??????-forwarder/log")
        [log] = [path for path in found if str(path.parent) in known]
        running.kill()
    cleaned = machine.tailtap("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert machine.namespaces() == []
    assert not log.exists()
    assert (pages.read_text() if pages.exists() else None) == before
    wait_for(lambda: not processes(str(log.parent)), "the end of what it had started")
