"""The lab's links, and ports behind a macvlan or a bridge: packets pass, and nothing stays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from killed import Work, killed_at_every_step
from labtools import Machine, all_came, measured, stamps, wait_for
from namespaces import Lab as Spaces
from namespaces import Namespace

from tailtap.base.errors import MachineError
from tailtap.host.changes.clean import KINDS
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.net import namespaces
from tailtap.host.net.inside import NAMESPACES, NoNamespace, inside, inside_those_left
from tailtap.host.net.namespaces import Reached, ports, require_way
from tailtap.host.net.tap_filters import MADE, OWN, TapFilter, left_behind
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.compiler import receive_steering
from tailtap.lab.topology.graphs import DUT, DUT_EGRESS, DUT_INGRESS, FROM_DUT, TAPS, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.numbering import over_ways
from tailtap.remote.local import NamespaceHost, Process

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


CLASS = Path("/sys/class/net")
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def interfaces() -> list[str]:
    return sorted(path.name for path in CLASS.iterdir())


@pytest.fixture
def namespace(lab: Spaces) -> Namespace:
    made = lab.namespace()
    made.veth("in", "out")
    return made


@pytest.fixture
def half_made() -> Iterator[str]:
    """The file that ip-netns(8) makes before it mounts the namespace on it."""
    NAMESPACES.mkdir(exist_ok=True)
    path = NAMESPACES / f"half-made-{uuid4().hex[:8]}"
    path.touch()
    yield path.name
    path.unlink()


def test_the_namespace_of_this_process_is_looked_at() -> None:
    assert inside([(OWN, interfaces)]) == [interfaces()]


@pytest.mark.parametrize("there", [False, True])
def test_what_is_no_namespace_is_left_out(
    namespace: Namespace, half_made: str, there: bool
) -> None:
    name = half_made if there else f"{half_made}-not"
    work = [(name, interfaces), (namespace.name, interfaces), (name, interfaces)]
    assert inside_those_left(work, None) == [None, ["in", "lo", "out"], None]
    with pytest.raises(NoNamespace):
        inside(work)


def test_a_namespace_that_is_being_made_has_no_values_and_no_ports(
    namespace: Namespace, half_made: str
) -> None:
    here, gone = (
        KernelValue((FORWARDING,), "1", namespace=space) for space in (namespace.name, half_made)
    )
    assert KernelValue.read_all([here, gone]) == [{FORWARDING: "0"}, {}]
    assert KernelValue.undo_all([(gone, {FORWARDING: "0"})]) == [None]
    assert ports(half_made) == set()


def test_one_tap_stamps_in_several_namespaces(lab: Spaces, tmp_path: Path) -> None:
    """By a name and by a path; it leaves nothing in any of them."""
    one, other = lab.namespace(), lab.namespace()
    for namespace in (one, other):
        namespace.veth("gen", "in")
    path = f"/run/netns/{other.name}"
    tap = one.start(
        *("tap", "in:drop", f"far={other.name}/in", f"out={path}/gen@egress"),
        *("--write", f"{tmp_path}/{{link}}.stamps"),
    )
    for namespace, count in ((one, 30), (other, 40)):
        send = ("generate", "gen", "--rate", "10 kpkt/s", "--count", str(count), "--no-bypass")
        namespace.tailtap(*send)
    links = tap.stop()["links"]
    assert {name: link["seen"] for name, link in links.items()} == {"in": 30, "far": 40, "out": 40}
    assert [link["namespace"] for link in links.values()] == [None, other.name, path]
    # It was there at the end as well, though it had given root's privileges up.
    assert [link["warnings"] for link in links.values()] == [[], [], []]
    assert [link["dropped"] for link in links.values()] == [0, 0, 0]
    left, came = (stamps(tmp_path / f"{name}.stamps")["time_ns"] for name in ("out", "far"))
    assert (left <= came).all()
    for namespace in (one, other):
        assert "clsact" not in namespace.run("tc", "qdisc", "show").stdout


PROGRAM = """
#include <linux/bpf.h>
__attribute__((section("tc"), used)) int {name}(struct __sk_buff *skb) {{ return -1; }}
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"""
HOLD = """
import ctypes, sys
attributes = ctypes.create_string_buffer(int(sys.argv[1]).to_bytes(4, sys.byteorder), 128)
held = ctypes.CDLL(None).syscall(int(sys.argv[2]), 13, attributes, 128)
print(held, flush=True)
sys.stdin.read()
"""
"""Holds the program of a number: BPF_PROG_GET_FD_BY_ID of bpf(2)."""
BPF = {"x86_64": 321, "aarch64": 280}
TAP = int.from_bytes(b"ta")


def built(folder: Path, name: str) -> Path:
    """A program of this name, which lets all packets pass."""
    source, made = folder / f"{name}.c", folder / f"{name}.o"
    source.write_text(PROGRAM.format(name=name))
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
    include = f"/usr/include/{machine.strip()}-linux-gnu"
    command = ["clang", "-target", "bpf", "-O2", "-g", "-idirafter", include, "-c", str(source)]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made


def own(namespace: Namespace) -> list[TapFilter]:
    return [one for one in left_behind() if one.namespace.endswith(f"/{namespace.name}")]


def test_what_a_killed_tap_left_is_found_and_removed(namespace: Namespace, tmp_path: Path) -> None:
    tap, other = (built(tmp_path, name) for name in ("tap", "stranger"))
    filters = (("in", "ingress", TAP | MADE, tap), ("out", "ingress", TAP, tap),
               ("out", "egress", TAP, other))  # fmt: skip
    for port in ("in", "out"):
        namespace.run("tc", "qdisc", "add", "dev", port, "clsact")
    for port, hook, handle, program in filters:
        where = ["dev", port, hook, "protocol", "all", "pref", "1", "handle", f"{handle:#x}"]
        namespace.run("tc", "filter", "add", *where, "bpf", "da", "obj", str(program), "sec", "tc")
    found = own(namespace)
    # A stranger's program is none of ours, whatever its handle.
    assert [(one.interface, one.hook) for one in found] == [("out", "ingress"), ("in", "ingress")]
    for one in found:
        assert one.read()
        one.undo(old=False)
        assert not one.read()
        one.undo(old=False)  # a second time it does nothing
    assert own(namespace) == []
    shown = namespace.run("tc", "qdisc", "show").stdout
    assert "clsact" in shown and "dev out" in shown
    [qdisc] = [line for line in shown.splitlines() if "clsact" in line]
    assert "dev out" in qdisc  # the other one was made by its tap
    assert "stranger" in namespace.run("tc", "filter", "show", "dev", "out", "egress").stdout


def test_what_a_running_tap_has_stays(namespace: Namespace, tmp_path: Path) -> None:
    namespace.run("tc", "qdisc", "add", "dev", "in", "clsact")
    where = ["dev", "in", "ingress", "protocol", "all", "pref", "1", "handle", f"{TAP:#x}"]
    program = str(built(tmp_path, "tap"))
    namespace.run("tc", "filter", "add", *where, "bpf", "da", "obj", program, "sec", "tc")
    shown = namespace.run("tc", "-json", "filter", "show", "dev", "in", "ingress").stdout
    number = shown.split('"prog":{"id":')[1].split(",")[0]
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, number, str(BPF[machine.strip()])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None and int(holder.stdout.readline()) > 0
        assert own(namespace) == []
    finally:
        holder.communicate("")
    assert len(own(namespace)) == 1


SECOND_AND_A_HALF = 1.5


def test_steering_is_read_back() -> None:
    """The kernel has what was asked for; what it does not take is an error, and changes nothing."""

    def steer(cpu: int) -> None:
        lab.make(receive_steering(lab.name_of(TAPS), FROM_DUT, [cpu]))

    def steered() -> str:
        mask = f"/sys/class/net/{FROM_DUT}/queues/rx-0/rps_cpus"
        command = ["ip", "netns", "exec", lab.name_of(TAPS), "cat", mask]
        return subprocess.check_output(command, text=True).strip("0,\n")

    with Lab(smallest()) as lab:
        lab.wait_until_up()
        assert steered() == ""
        steer(0)
        assert steered() == "1"
        with pytest.raises(MachineError) as caught:
            steer(8000)
        assert "\n" not in str(caught.value)
        assert "these CPUs online" in str(caught.value)
        assert steered() == "1"


def test_nothing_happens_to_links_that_are_up() -> None:
    with Lab(smallest("namespace", [0])) as lab:
        lab.add({DUT: ()})
        lab.wait_until_up()
        # The kernel tells of what it has put off once a second, and wakes up who listens.
        watching = lab.watch()
        time.sleep(SECOND_AND_A_HALF)
        assert news(watching) == []
        # They would have said so.
        delete = ["ip", "-n", lab.name_of(TAPS), "link", "delete", FROM_DUT]
        subprocess.run(delete, check=True)
        wait_for(lambda: FROM_DUT in map(lab.deleted_port, news(watching)), "what would be said")
        for process in watching:
            process.close()


def news(watching: Iterable[Process]) -> list[str]:
    return [line for process in watching for line in process.read_available() or ()]


@pytest.mark.parametrize("reboot", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lab_that_is_killed_at_any_step_leaves_nothing(machine: Machine, reboot: bool) -> None:
    steps, kinds = killed_at_every_step(machine, "lab", reboot=reboot)
    assert steps > 40
    assert kinds == (
        {"folder", "journal"} if reboot else {"folder", "journal", "link", "namespace", "value"}
    )


@pytest.mark.apart
@pytest.mark.parametrize(
    ("work", "least", "expected"),
    [
        pytest.param(
            "lxc-start", 15, {"container", "journal", "namespace"}, marks=pytest.mark.slow
        ),
        ("crun", 15, {"oci-container", "journal", "namespace"}),
        pytest.param("runc", 15, {"oci-container", "journal", "namespace"}, marks=pytest.mark.slow),
        pytest.param(
            "podman", 15, {"podman-container", "journal", "namespace"}, marks=pytest.mark.slow
        ),
        ("huge pages", 5, {"huge-pages", "journal"}),
    ],
)
def test_what_is_killed_at_any_step_leaves_nothing(
    machine: Machine, work: Work, least: int, expected: set[str]
) -> None:
    steps, kinds = killed_at_every_step(machine, work)
    assert steps > least
    assert kinds == expected
