"""Energy, memory and counts of processors: what is said of the time between two readings."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from observing import NoLinks
from pydantic import ValidationError

from tailtap.base.errors import MachineError
from tailtap.doctor.machine import _energy
from tailtap.lab.instruments import energy as instrument
from tailtap.lab.instruments.energy import Counter, closed, count_energy, counters, platform_watts
from tailtap.lab.instruments.events import (
    DEFAULT,
    HARDWARE,
    SOFTWARE,
    Encoding,
    Events,
    UnknownEvent,
    encodings,
)
from tailtap.lab.instruments.events import DEFAULT as EVENTS
from tailtap.lab.instruments.kernel_counters import far, memory_of, nodes_of
from tailtap.lab.instruments.kinds import INSTRUMENTS
from tailtap.lab.instruments.observing import Scope, Watching
from tailtap.lab.instruments.perf import Count, Snapshot, missing, window
from tailtap.records.record import as_json
from tailtap.remote.local import LocalHost

SCOPE = Scope((1,), (0,), NoLinks())
RANGE = 262_143_328_850
"""Of a Xeon's package, in microjoules."""
ZONES = {
    "intel-rapl:0": ("package-0", 1000),
    "intel-rapl:0:0": ("dram", 50),
    "intel-rapl:1": ("package-1", 2000),
    "intel-rapl:1:0": ("dram", 70),
    "intel-rapl:2": ("psys", 9000),
    "intel-rapl-mmio:0": ("package-0", 1000),
}
TOLD = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                  4 Watts
    Maximum during sampling period:                410 Watts
    Average power reading over sample period:      198 Watts
    IPMI timestamp:                           Mon Nov 23 05:00:00 2026
    Sampling period:                          00000005 Seconds.
    Power reading state is:                   {state}
"""
IPMITOOL = """#!/bin/sh
[ "$*" = "dcmi power reading" ] || exit 9
cat {folder}/answer
"""


def put(root: Path, zone: str, energy: int, name: str = "", most: int = RANGE) -> None:
    folder = root / "sys/class/powercap" / zone
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "energy_uj").write_text(f"{energy}\n")
    if name:
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{most}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for zone, (name, energy) in ZONES.items():
        put(tmp_path, zone, energy, name)
    return tmp_path


def ipmi(root: Path, monkeypatch: pytest.MonkeyPatch, watts: int, state: str = "activated") -> None:
    """A controller, and a program of the name `ipmitool` that stands in for the real one."""
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/ipmi0").touch()
    (root / "answer").write_text(TOLD.format(watts=watts, state=state))
    program = root / "ipmitool"
    program.write_text(IPMITOOL.format(folder=root))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:/usr/bin:/bin")


def test_counters_by_domain(machine: Path) -> None:
    assert {name: one.energy_uj for name, one in counters(machine).items()} == {
        "package-0": 1000,
        "package-0/dram": 50,
        "package-1": 2000,
        "package-1/dram": 70,
        "psys": 9000,
    }
    assert not closed(machine)


def test_the_energy_between_start_and_stop(machine: Path) -> None:
    observation = count_energy(SCOPE, machine)
    assert observation is not None
    put(machine, "intel-rapl:0", 6_000_000)
    put(machine, "intel-rapl:1", 1999)  # it has wrapped
    time.sleep(0.01)
    told = as_json(observation.stop().facts)["energy"]
    assert told["elapsed_ns"] >= 10_000_000
    assert told["energy_uj"] == {
        "package-0": 5_999_000,
        "package-0/dram": 0,
        "package-1": RANGE,
        "package-1/dram": 0,
        "psys": 0,
    }
    assert "platform_watts" not in told


def test_what_wraps_again_and_again_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that is read once in each range that it can count in the time."""
    most = 999
    monkeypatch.setattr(instrument, "MOST_WATTS", most / 1e6 / 0.02)
    put(tmp_path, "intel-rapl:0", 0, "package-0", most)
    readings = [400, 800, 200]
    seen = 0

    def played(_root: Path) -> dict[str, Counter]:
        nonlocal seen
        seen += 1
        return {"package-0": Counter(readings[min(seen, len(readings)) - 1], most)}

    observation = count_energy(SCOPE, tmp_path)
    assert observation is not None
    monkeypatch.setattr(instrument, "counters", played)
    while seen < len(readings):
        time.sleep(0.001)
    assert as_json(observation.stop().facts)["energy"]["energy_uj"] == {"package-0": 1200}


def test_the_whole_machine_s_power_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipmi(tmp_path, monkeypatch, 212)
    observation = count_energy(SCOPE, tmp_path)
    assert observation is not None
    ipmi(tmp_path, monkeypatch, 305)
    told = as_json(observation.stop().facts)["energy"]
    assert told["platform_watts"] == {"before": 212, "after": 305}
    assert told["energy_uj"] == {}


def test_a_controller_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ipmi(tmp_path, monkeypatch, 0, "deactivated")
    assert platform_watts(tmp_path) is None
    (tmp_path / "answer").write_text("DCMI request failed because: Invalid command (c1)\n")
    assert platform_watts(tmp_path) is None
    (tmp_path / "ipmitool").write_text("#!/bin/sh\nexit 1\n")
    assert platform_watts(tmp_path) is None
    (tmp_path / "ipmitool").unlink()
    monkeypatch.setattr("tailtap.remote.local.SYSTEM_PATH", str(tmp_path))
    assert platform_watts(tmp_path) is None


def test_where_nothing_tells_nothing_is_said(tmp_path: Path) -> None:
    assert count_energy(SCOPE, tmp_path) is None
    assert "energy" in INSTRUMENTS
    assert _energy([], None).state == "missing"
    assert _energy(["package-0"], 212).found == "package-0, IPMI: 212 W"


def test_memory_is_that_of_the_process_and_of_all_it_started(tmp_path: Path) -> None:
    taken = 50_000_000
    inner = f"import sys; held = bytearray({taken}); print(flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = memory_of(process.pid)
        assert found is not None and taken < found < 3 * taken
        process.stdin.close()
    assert memory_of(process.pid) is None
    assert memory_of(1, tmp_path) is None


MAPS = """\
55d0c0000000 default file=/usr/bin/program mapped=10 mapmax=2 N1=10 kernelpagesize_kB=4
55d0c1000000 default heap anon=25 dirty=25 N0=20 N1=5 kernelpagesize_kB=4
7f0000000000 default file=/dev/hugepages/rtemap_0 huge dirty=3 N1=3 kernelpagesize_kB=2048
7ffd00000000 default stack anon=2 dirty=2 N0=2 kernelpagesize_kB=4
"""


def process(proc: Path, pid: int, parent: int, maps: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a program) S {parent} 1 1\n")
    (folder / "numa_maps").write_text(maps)


def test_the_memory_of_a_program_and_its_children_by_node(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, MAPS)
    process(tmp_path, 11, 10, "7ffd00000000 default stack anon=1 N0=1 kernelpagesize_kB=4\n")
    process(tmp_path, 12, 1, MAPS)
    # What is in files belongs to whoever read them first; huge pages are the program's own.
    assert nodes_of(10, tmp_path) == {0: 23 * 4096, 1: 5 * 4096 + 3 * (2 << 20)}
    assert nodes_of(99, tmp_path) == {}


def test_memory_on_another_node_is_a_crossing() -> None:
    [warning] = far({0: 1 << 20, 1: 64 << 20}, (0,))
    assert warning.code == "numa-crossing"
    assert warning.message == (
        "64 MiB of the forwarder's memory are on NUMA node 1, and dut.cpus on 0"
    )
    assert list(far({0: 64 << 20, 1: 1 << 20}, (0,))) == []
    assert list(far({0: 1 << 20, 1: 64 << 20}, (0, 1))) == []
    # Where there is no device there is nothing to be far from.
    assert list(far({0: 1 << 20, 1: 64 << 20}, ())) == []


def _observe(links: NoLinks) -> Watching:
    return Watching(Scope((1,), (0,), links))


def _trouble(observation: Watching) -> str | None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and observation.sources():
        if trouble := observation.trouble():
            return trouble
        time.sleep(0.01)
    return None


def test_those_who_tell_may_end_as_the_links_are_looked_at_in_the_end() -> None:
    process = LocalHost().start(["true"])
    links = NoLinks([process])
    observation = _observe(links)
    assert _trouble(observation) is None
    assert observation.sources() == []
    links.broken.append("interface tt-out of namespace tt-dut is down")
    with pytest.raises(MachineError, match="tt-out of namespace tt-dut is down during the run"):
        observation.stop()


SECOND = 1_000_000_000


def reading(at_ns: int, *cpus: dict[str, Count | None]) -> Snapshot:
    """Counters of CPUs 0, 1, …; an event that is not named stands still."""
    still: dict[str, Count | None] = dict.fromkeys(EVENTS, Count(5, at_ns, at_ns))
    by_cpu = {
        cpu: {name: [] if one is None else [one] for name, one in {**still, **counters}.items()}
        for cpu, counters in enumerate(cpus)
    }
    return Snapshot(at_ns, list(EVENTS), by_cpu)


def test_a_scope_is_named_and_holds_its_cpus_alone() -> None:
    before = reading(SECOND, {"cpu-migrations": Count(1, 1, 1)}, {"cpu-migrations": Count(7, 1, 1)})
    after = reading(
        3 * SECOND,
        {"cpu-migrations": Count(11, SECOND, SECOND)},
        {"cpu-migrations": Count(10, SECOND, SECOND)},
    )
    dut, machine = window(before, after, [1]), window(before, after, None)
    assert (dut.scope, dut.cpus, dut.elapsed_ns) == ("dut.cpus", [1], 2 * SECOND)
    assert (machine.scope, machine.cpus) == ("machine", [0, 1])
    assert dut.events["cpu-migrations"] == 3
    assert machine.events["cpu-migrations"] == 13
    assert dut.by_cpu == machine.by_cpu
    assert machine.by_cpu["0"]["cpu-migrations"] == 10
    assert list(machine.events) == list(machine.by_cpu["1"]) == list(EVENTS)
    assert machine.estimated == []
    assert window(before, after, [1, 0]).events == machine.events


def test_what_a_processor_does_not_count_is_missing_and_not_zero() -> None:
    none = dict.fromkeys(EVENTS, None)
    found = window(
        reading(0, {}, {"branches": None}), reading(SECOND, {}, {"branches": None}), None
    )
    assert found.events == {**dict.fromkeys(EVENTS, 0), "branches": None}
    assert found.by_cpu["0"]["branches"] == 0
    nothing = window(reading(0, none), reading(SECOND, none), [0])
    assert nothing.events == none
    assert nothing.estimated == []
    [warning] = missing(nothing)
    assert warning.code == "counters-missing"
    assert all(name in warning.message for name in EVENTS)
    assert missing(window(reading(0, {}), reading(SECOND, {}), None)) == ()


def test_counters_that_take_turns_are_projected_and_named() -> None:
    before = reading(0, {"branches": Count(100, 10, 10), "instructions": Count(0, 10, 0)})
    after = reading(SECOND, {"branches": Count(350, 110, 60), "instructions": Count(0, 110, 0)})
    found = window(before, after, [0])
    assert found.events["branches"] == 250 * 100 // 50
    assert found.events["instructions"] is None  # its turn never came
    assert found.estimated == ["instructions", "branches"]


RAW = 4
with_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")


@with_perf
def test_names_are_encoded_as_the_kernel_takes_them() -> None:
    """linux/perf_event.h has these numbers; whether this machine counts them does not matter."""
    kernel, hypervisor = 1 << 5, 1 << 6
    assert dict(encodings(["cycles", "page-faults:u", "r1a8", "task-clock"])) == {
        "cycles": (Encoding(HARDWARE, 0),),
        "page-faults:u": (Encoding(SOFTWARE, 2, flags=kernel | hypervisor),),
        "r1a8": (Encoding(RAW, 0x1A8),),
        "task-clock": (Encoding(SOFTWARE, 1),),
    }


@with_perf
def test_ours_are_those_of_perf() -> None:
    """A modifier that changes nothing makes perf be asked."""
    for name, ours in DEFAULT.items():
        [told] = encodings([f"{name}:ukh"])[f"{name}:ukh"]
        assert told == ours


@with_perf
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("instrucions", "there is no event 'instrucions' here: did you mean 'instructions'"),
        ("duration_time", "duration_time is perf's own: choose what a kernel counts"),
        ("qqqqqqqq", "here: this machine has instructions, branches,"),
    ],
)
def test_what_nothing_counts_is_told_with_its_place(name: str, said: str) -> None:
    with pytest.raises(UnknownEvent) as caught:
        encodings(["branches", name])
    assert caught.value.position == 1
    assert str(caught.value).startswith("counters.events[1]: ")
    assert said in caught.value.reason


@pytest.mark.parametrize(
    "name",
    ["", "a b", "{cycles,branches}", "cycles,branches", "-x", "--event", "cpu/event=1", "a\nb"],
)
def test_one_name_is_one_event(name: str) -> None:
    with pytest.raises(ValidationError, match=r"write one event|at least|at most"):
        Events.model_validate({"events": [name]})


@pytest.mark.parametrize("name", ["cpu/event=0xc4,umask=1/uk", "sched:sched_switch", "probe:tcp*"])
def test_names_that_perf_may_know(name: str) -> None:
    assert Events.model_validate({"events": [name]}).events == [name]


def test_an_event_is_counted_once() -> None:
    with pytest.raises(ValidationError, match="cycles is there twice: leave one out"):
        Events.model_validate({"events": ["cycles", "branches", "cycles"]})
