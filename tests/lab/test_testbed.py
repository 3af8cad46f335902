"""Roles on three machines that ssh reaches: a whole run, hosts that die, and what is not there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labtools import (
    TAILTAP,
    Held,
    all_came,
    codes_of,
    counts_of,
    ids_of,
    record,
    stamps,
    wait_for,
    was_made,
)
from numpy.typing import NDArray
from ssh_hosts import Hosts, ssh_hosts
from testbeds import EXPERIMENT, TESTBED, as_it_was, run_on, runs, words
from traces import FUNCTION, TASK, Trace

import tailtap
from tailtap.analysis.runs.reader import load_search
from tailtap.show.report.requested import requested_figures

SPLIT = """
hosts:
  tester: {{ssh: {tester}, python: /usr/bin/python3}}
  dut: {{ssh: {dut}, python: /usr/bin/python3}}
  stamper: {{ssh: {stamper}, python: /usr/bin/python3}}
cables:
  - {{ends: [tester:lit0, dut:lit1], splitter: stamper:seen-lit0}}
  - {{ends: [dut:lit2, tester:lit3], splitter: stamper:seen-lit2}}
roles: {{dut: dut, generator: tester, timestamper: stamper}}
ssh_config: ssh_config
"""
MORE = {
    "lab.yaml": """
  - {ends: [tester:more0, dut:more1]}
  - {ends: [dut:more2, tester:more3]}
""",
    "split.yaml": """
  - {ends: [tester:lot0, dut:lot1], splitter: stamper:seen-lot0}
  - {ends: [dut:lot2, tester:lot3], splitter: stamper:seen-lot2}
""",
}
"""Cables for a second flow."""
PACKETS = 2000
PROGRAMS = "/var/lib/tailtap/programs"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with ssh_hosts(folder, ["tester", "dut", "stamper"]) as made:
        made.cable("tester", "card0", "dut", "card1")
        made.cable("dut", "card2", "tester", "card3")
        made.split_cable((("tester", "lit0"), ("dut", "lit1")), "stamper")
        made.split_cable((("dut", "lit2"), ("tester", "lit3")), "stamper")
        made.cable("tester", "more0", "dut", "more1")
        made.cable("dut", "more2", "tester", "more3")
        made.split_cable((("tester", "lot0"), ("dut", "lot1")), "stamper")
        made.split_cable((("dut", "lot2"), ("tester", "lot3")), "stamper")
        (folder / "lab.yaml").write_text(TESTBED.format(**made.addresses))
        (folder / "split.yaml").write_text(SPLIT.format(**made.addresses))
        (folder / "experiment.yaml").write_text(EXPERIMENT)
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(hosts: Hosts) -> Iterator[None]:
    with as_it_was(hosts):
        yield


def test_roles_on_other_hosts_are_like_those_on_one(hosts: Hosts, tmp_path: Path) -> None:
    """Generator and taps on one host and the device on another; then each role on a third, and a
    line of two nodes behind the splitters. The third host has no Python.
    """
    at = f"ssh: {hosts.addresses['stamper']}, python: "
    split = (hosts.folder / "split.yaml").read_text()
    (hosts.folder / "bare.yaml").write_text(split.replace(f"{at}/usr/bin", f"{at}/nowhere"))
    for out, testbed, line in (("far", "lab.yaml", 1), ("split", "bare.yaml", 2)):
        run_on(hosts, tmp_path / out, "--set", f"dut.line={line}", testbed=testbed)
    for out in ("far", "split"):
        [run] = (tmp_path / out / "runs").iterdir()
        all_passed(run, PACKETS)
    [told] = runs(tmp_path / "far")
    assert [link.get("cards") for link in told["links"]] == [
        None,
        ["card0", "card1"],
        ["card2", "card3"],
    ]
    for out, others in (("far", {"dut"}), ("split", {"dut", "generator"})):
        [told] = runs(tmp_path / out)
        clocks = told["clocks"]
        assert {role for role in clocks if "ahead_ns" in clocks[role]} == others
        # All hosts have the clock of one kernel.
        ends = [end for role in others for end in clocks[role]["ahead_ns"]]
        assert all(least <= 0 <= most < least + 100_000_000 for least, most in ends)
    [told] = runs(tmp_path / "split")
    assert [link.get("splitter", {}).get("port") for link in told["links"]] == [
        "tap:tt-a0", None, "tap:tt-b0",
    ]  # fmt: skip
    assert [node["name"] for node in told["nodes"]] == ["gen", "tap", "dut1", "dut2"]
    assert "stamped-on-interrupt" in {warning["code"] for warning in told["warnings"]}
    assert (tmp_path / "far/testbed.yaml").read_text() == (hosts.folder / "lab.yaml").read_text()
    for name, machine in hosts.machines.items():
        assert len(machine.run("ls", PROGRAMS).stdout.split()) == 1
        given = machine.run("sh", "-c", f"ls {PROGRAMS}/*/runtime/bin").stdout.split()
        assert given == (["python3"] if name == "stamper" else [])


def all_passed(run: Path, packets: int) -> None:
    assert counts_of(run)["ingress"] == packets and all_came(run, packets)
    assert ids_of(run, "ingress") == ids_of(run) == list(range(packets))


NETWORK = """
name: network
dut:
  forwarder: kernel-route
  cpus: [1]
  nodes: {r: {count: 2}, c: {platform: container}}
  links: [in - r1 - r2 - out, r1 - c - out]
  flows: {a: {path: [in, r1, r2, out]}, b: {path: [in, r1, c, out], rate: 2 kpkt/s}}
traffic: {rate: 1 kpkt/s, duration: 200 ms, warm_up: 0 s, cpu: 0, slip_limit: 1 s}
"""


@pytest.mark.slow
@pytest.mark.parametrize("testbed", ["lab.yaml", "split.yaml"])
def test_flows_of_a_network_have_cables_of_their_own(
    hosts: Hosts, tmp_path: Path, testbed: str
) -> None:
    """With and without splitters; the check says how many cables are missing."""
    (tmp_path / "network.yaml").write_text(NETWORK)
    lab = hosts.folder / "network.yaml"
    lab.write_text((hosts.folder / testbed).read_text())
    command = ["run", str(tmp_path / "network.yaml"), "--testbed", str(lab)]
    refused = hosts.controller.tailtap(*command, "--check")
    assert refused.returncode == 2, refused.stdout
    assert "it needs one before it and one behind it for each of 2 flows" in refused.stderr
    lab.write_text(lab.read_text().replace("roles:", f"{MORE[testbed]}roles:"))
    checked = hosts.controller.tailtap(*command, "--check", "--json")
    assert json.loads(checked.stdout)["can_run"], checked.stdout + checked.stderr
    done = hosts.controller.tailtap(*command, "--out", str(tmp_path / "out"))
    assert was_made(done), done.stderr
    found = runs(tmp_path / "out")
    assert [run["variables"] for run in found] == [{"flow": "a"}, {"flow": "b"}]
    for run, folder, packets in zip(
        found, sorted((tmp_path / "out/runs").iterdir()), (200, 400), strict=True
    ):
        assert run["status"] == "done", run["error"]
        all_passed(folder, packets)
    cards = [set(link["cards"]) for link in found[0]["links"] if "cards" in link]
    assert len(cards) == 4
    assert len(set().union(*cards)) == 8


@pytest.mark.timed  # sshd may be held since before the first packet
def test_nothing_of_ours_has_the_device_s_core_while_packets_are_measured(
    hosts: Hosts, tmp_path: Path
) -> None:
    """Neither its host's sshd nor what that started runs there, or calls a function there."""
    threads: dict[int, str] = {}
    command = words(hosts, tmp_path / "out", "--set", "trace=thin", testbed="split.yaml")
    with hosts.controller.start(*command) as running:
        while running.poll() is None:
            threads |= hosts.threads("dut")
            time.sleep(0.05)
        said = running.communicate()[1]
        assert was_made(running, said), said
    assert {"sshd", "python3", "tt-trace"} <= set(threads.values()), threads
    [run] = (tmp_path / "out/runs").iterdir()
    trace = Trace.read(run)
    rows = stamps(run / "ingress.stamps")
    first, last = rows[0]["time_ns"], rows[-1]["time_ns"]
    assert trace.records["start"].min() < first < last < trace.said["ended_ns"]
    assert not any(trace.said["lost"].values())

    def meanwhile(kind: int) -> NDArray[Any]:
        of_core = trace.of(kind, cpu=1)
        inside = (of_core["start"] + of_core["dur"] > first) & (of_core["start"] < last)
        found: NDArray[Any] = of_core[inside]
        return found

    tasks, callers = meanwhile(TASK)["id"], meanwhile(FUNCTION)["id"] >> 10
    assert tasks.size
    had_it, called = (
        {threads[one] for one in found.tolist() if one in threads} for found in (tasks, callers)
    )
    assert (had_it, called) == (set(), set())


def test_a_check_asks_each_host_about_its_part(hosts: Hosts, tmp_path: Path) -> None:
    wrong = ("--set", "dut.cpus=[8000]", "--set", "traffic.cpu=8001", "--set", "dut.kernel='0.1'")
    clock = ("--set", "tap.clock=hardware")
    done = hosts.controller.tailtap(
        *words(hosts, tmp_path / "out", "--check", "--json", *wrong, *clock, testbed="split.yaml")
    )
    assert done.returncode == 3, done.stderr
    [run] = json.loads(done.stdout)["runs"]
    said = [row["message"].split(": choose")[0] for row in run["problems"]]
    assert said[0] == "dut: there is no CPU 8000 here for dut.cpus"
    assert said[1].startswith("dut: dut.kernel: ")
    assert said[2] == "tester: there is no CPU 8001 here for traffic.cpu"
    cards = "stamper: tap.clock: hardware: seen-lit0 cannot stamp every received packet: its driver"
    assert said[3] == f"{cards} veth stamps in software only (no hardware-receive)"
    assert len(said) == 4
    assert not (tmp_path / "out").exists()


LIMITS = [5_000, 50_000]
LOW, HIGH, LOST = 2_000, 10_000, 0.2
SEARCHED = f"""
name: limits
dut: {{forwarder: fault, cpus: [1], options: {{limit: {{rate: 1 pkt/s, queue: 100}}}}}}
traffic: {{duration: 200 ms, warm_up: 100 ms, cpu: 0, slip_limit: 10 s}}
vary: {{dut.options.limit.rate: [{LIMITS[0]} pkt/s, {LIMITS[1]} pkt/s]}}
figures: [{{kind: highest-rate, over: dut.options.limit.rate}}]
"""


@pytest.mark.slow
def test_the_highest_rate_of_each_variant_is_searched_for(hosts: Hosts, tmp_path: Path) -> None:
    """On the testbed, with what varies on one axis of a figure."""
    path, out = tmp_path / "limits.yaml", tmp_path / "out"
    path.write_text(SEARCHED)
    done = hosts.controller.tailtap(
        "search", str(path), "--testbed", str(hosts.folder / "lab.yaml"), "--out", str(out),
        "--json", "--method", "binary", "--from", f"{LOW} pkt/s", "--to", f"{HIGH} pkt/s",
        "--precision", "90%", "--trial", "300 ms", "--short", "100 ms", "--loss", f"{LOST}",
        "--latency-at", "50%",
    )  # fmt: skip
    assert was_made(done), done.stderr
    found = json.loads(done.stdout)
    assert [(one["variables"], one["rate"], one["upper"]) for one in found["answers"]] == [
        ({"dut.options.limit.rate": f"{LIMITS[0]} pkt/s"}, LOW, HIGH),
        ({"dut.options.limit.rate": f"{LIMITS[1]} pkt/s"}, HIGH, None),
    ]
    asked = [run["parameters"]["traffic"]["rate"] for run in found["latency"]["runs"]]
    assert asked == [LOW // 2, HIGH // 2]
    for folder in (out, out / "latency"):
        assert (folder / "testbed.yaml").read_text() == (hosts.folder / "lab.yaml").read_text()
    experiment, search = load_search(out)
    rows = [(answer.variables, answer.loss) for answer in search.answers]
    assert rows == [({"dut.options.limit.rate": f"{one} pkt/s"}, 0.2) for one in LIMITS]
    [drawn] = requested_figures(experiment, None)
    assert drawn.drawn is not None, drawn.reason
    [[mark]] = [panel.marks for panel in drawn.drawn.panels]
    assert (mark.x.tolist(), mark.y.tolist()) == (LIMITS, [LOW, HIGH])
    assert mark.high is not None
    assert mark.high[0] == HIGH


STAND_INS = {
    "host/net/nic.py": """

def timestamping(interface: str) -> Timestamping:
    able = frozenset(("hardware-receive", "hardware-raw-clock"))
    return Timestamping(interface, "veth", able, CLOCK, ("all",), METADATA)
""",
    "host/net/card_clocks.py": """

class CardClock(CardClock):
    def __init__(self, number: int) -> None:
        self.device, self.by = f"/dev/ptp{number}", "extended"

    def close(self) -> None:
        pass

    def read(self) -> Reading:
        kernel = time.monotonic_ns
        shown = kernel if METADATA else time.time_ns
        return Reading(kernel(), shown(), kernel())
""",
    "lab/instruments/taps/hardware.py": """

by_cards, STAND_IN = stamp, "software"


def stamp(links, clock, on_ready, **more):
    from tailtap import _core

    stamps = _core.stamp
    _core.stamp = lambda chosen, clock, *rest, **more: stamps(chosen, STAND_IN, *rest, **more)
    return by_cards(links, clock, on_ready, **more)
""",
}
"""What is written to the end of these files of ours: a card that says that it stamps all packets,
and the kernel's stamps and clock in place of a card's."""
TWO = "int('b' in interface)"


@pytest.mark.parametrize(
    ("metadata", "clock", "number"),
    [("True", "monotonic", TWO), pytest.param("False", "realtime", "0", marks=pytest.mark.slow)],
)
def test_stamps_of_cards_become_a_run(
    hosts: Hosts, tmp_path: Path, metadata: str, clock: str, number: str
) -> None:
    """By XDP metadata, or by control messages: all but the card's own clock, which nobody has."""
    other = tmp_path / "python/tailtap"
    shutil.copytree(Path(tailtap.__file__).parent, other)
    for name, text in STAND_INS.items():
        with (other / name).open("a") as file:
            file.write(text.replace("METADATA", metadata).replace("CLOCK", number))
    out, more = tmp_path / "out", ("--set", "tap.clock=hardware", "--set", "trace=thin")
    done = hosts.controller.run(
        "env",
        f"PYTHONPATH={other.parent}",
        *TAILTAP,
        *words(hosts, out, *more, testbed="split.yaml"),
    )
    assert was_made(done), done.stderr
    [run] = (out / "runs").iterdir()
    all_passed(run, PACKETS)
    told = record(run)
    assert {tap["clock"] for tap in told["taps"].values()} == {clock}
    taps = told["taps"].values()
    assert all(len(tap["readings"]["times_ns"]) > 5 for tap in taps)
    clocks = json.loads((run / "evaluation/evaluation.json").read_text()).get("clocks")
    if number == TWO:
        assert [tap["clock_device"] for tap in taps] == ["/dev/ptp0", "/dev/ptp1"]
        assert clocks["by"] == "readings"
        assert 0 < clocks["within_ns"] < 1_000_000
        # The trace is of the kernel's clock, with which theirs were compared.
        done = hosts.controller.tailtap("explain", str(run), "--late", "p99", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["clock"]["width_ns"] > 2 * clocks["within_ns"]
    else:
        assert {tap["clock_device"] for tap in taps} == {"/dev/ptp0"}
        assert clocks is None
    assert told["parameters"]["tap"]["clock"] == "hardware"
    assert "stamped-on-interrupt" not in codes_of(run)


def test_cables_that_are_not_where_the_file_says_are_found(hosts: Hosts, tmp_path: Path) -> None:
    """A port of a bridge with a spanning tree forwards some seconds after it is up."""
    lab = hosts.folder / "split.yaml"
    spanning = "ip link set split-lit0 type bridge forward_delay 200 stp_state"
    hosts.controller.run(*spanning.split(), "1")
    done = hosts.controller.tailtap("testbed", "check", str(lab), "--json")
    hosts.controller.run(*spanning.split(), "0")
    assert done.returncode == 0, (done.stdout, done.stderr)
    told = json.loads(done.stdout)
    assert [cable["answer"] for cable in told["cables"]] == ["ok", "ok"]
    assert told["stamping"] == dict.fromkeys(
        ("stamper:seen-lit0", "stamper:seen-lit2"),
        "its driver veth stamps in software only (no hardware-receive)",
    )
    assert {host["kernel"] for host in told["hosts"]} == {os.uname().release}
    swapped = tmp_path / "swapped.yaml"
    text = lab.read_text().replace("dut:lit1", "dut:x").replace("dut:lit2", "dut:lit1")
    swapped.write_text(
        text.replace("dut:x", "dut:lit2").replace("ssh_config: ", f"ssh_config: {hosts.folder}/")
    )
    done = hosts.controller.tailtap("testbed", "check", str(swapped), "--json")
    assert done.returncode == 1, done.stderr
    assert [(cable["answer"], cable["said"]) for cable in json.loads(done.stdout)["cables"]] == [
        ("wrong", "what tester:lit0 sends comes to dut:lit1"),
        ("wrong", "what dut:lit1 sends comes to stamper:seen-lit0 and tester:lit0"),
    ]


@contextlib.contextmanager
def held(hosts: Hosts, folder: Path, *more: str) -> Iterator[Held]:
    with hosts.controller.held(folder, *words(hosts, folder / "out", *more)) as running:
        yield running


def station(hosts: Hosts, host: str, program: str) -> int:
    machine = hosts.machines[host]
    found: list[int] = []

    def look() -> bool:
        inside = Path(f"/proc/{machine.pid}/ns/net").readlink()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                said = (path / "cmdline").read_bytes().decode().replace("\0", " ")
                if program in said and (path / "ns/net").readlink() == inside:
                    found.append(int(path.name))
        return bool(found)

    wait_for(look, f"{program} on {host}")
    return found[0]


@pytest.mark.parametrize(
    ("host", "program", "said"),
    [
        ("dut", "-m tailtap.measure.roles", "dut"),
        pytest.param("tester", "-m tailtap.measure.roles", "tester", marks=pytest.mark.slow),
        pytest.param("dut", "sshd: root@notty", "dut", marks=pytest.mark.slow),
    ],
)
def test_who_dies_fails_one_run_and_leaves_nothing(
    hosts: Hosts, tmp_path: Path, host: str, program: str, said: str
) -> None:
    with held(hosts, tmp_path, "--set", "repeat=2") as running:
        os.kill(station(hosts, host, program), signal.SIGKILL)
        running.go_on()
        status, errors = running.ended()
    assert status == 3, errors
    first, second = runs(tmp_path / "out")
    assert (first["status"], second["status"]) == ("failed", "done")
    assert said in first["error"]
    more = ("--set", "repeat=2", "--resume")
    again = run_on(hosts, tmp_path / "out", *more)
    assert [run["status"] for run in again] == ["done", "done"]


def test_hosts_are_put_back_when_the_controller_is_killed(hosts: Hosts, tmp_path: Path) -> None:
    with held(hosts, tmp_path) as running:
        assert all(hosts.machines[name].namespaces() for name in ("tester", "dut"))
        running.kill(group=True)


@pytest.mark.slow
def test_a_cable_that_is_cut_fails_the_run(hosts: Hosts, tmp_path: Path) -> None:
    tester = hosts.machines["tester"]
    with held(hosts, tmp_path) as running:
        [namespace] = [name for name in tester.namespaces() if name.endswith("-tap")]
        cut = tester.run("ip", "-n", namespace, "link", "set", "tt-a1", "down")
        assert cut.returncode == 0, cut.stderr
        running.go_on()
        status, errors = running.ended()
    assert status == 3, errors
    [run] = runs(tmp_path / "out")
    assert "tt-in (the card card1)" in run["error"]
