"""Energy of a machine whose counters and management controller a test plays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from observing import NoLinks

from tailtap.doctor.machine import _energy
from tailtap.lab.instruments import INSTRUMENTS, Scope
from tailtap.lab.instruments import energy as instrument
from tailtap.lab.instruments.energy import Counter, closed, count_energy, counters, platform_watts
from tailtap.records.record import as_json

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


def test_a_counter_wraps() -> None:
    assert Counter(1200, RANGE).since(Counter(1000, RANGE)) == 200
    assert Counter(99, RANGE).since(Counter(RANGE - 100, RANGE)) == 200


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
