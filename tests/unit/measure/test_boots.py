"""Runs whose machine is booted: their order, what is asked of each, and boots that fail."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_station import FakeStation

from tailtap.base.errors import MachineError
from tailtap.experiment.reading import read_experiment
from tailtap.host.containers.cgroups import BOOT
from tailtap.measure.boots import Wanted
from tailtap.measure.campaign import Campaign
from tailtap.measure.check import check_experiment
from tailtap.measure.roles.here import Here
from tailtap.measure.run import everywhere
from tailtap.measure.runner import run_experiment
from tailtap.records.machine import Booted
from tailtap.remote.session import Foreseen, Setup

TEXT = """
name: paper
dut: {cpus: [1, 2]}
traffic: {rate: 10 kpkt/s, duration: 100 ms, warm_up: 0 s}
vary:
  dut.forwarder: [tc-mirred, xdp]
  dut.boot: ["", "nohz_full={cpus}"]
repeat: 2
"""
FORWARDERS, ONCE = "dut.forwarder: [tc-mirred, xdp]", {"repeat: 2": "repeat: 1"}
PLAIN, NOHZ = Wanted(None, ""), Wanted(None, "nohz_full=1,2")


class Boots:
    """Boots that are asked for, of which some fail."""

    def __init__(self, *fail: Wanted) -> None:
        self.fail = fail
        self.asked: list[tuple[int, Wanted | None]] = []

    def foresee(self, wanted: Wanted) -> str:
        if wanted in self.fail:
            raise MachineError("dut has no such kernel")
        return f"dut: it is booted with {wanted.words}"

    def bring(self, wanted: Wanted | None, repeat: int) -> Booted | None:
        self.asked.append((repeat, wanted))
        if wanted in self.fail:
            raise MachineError("dut did not come back")
        if wanted is None:
            return None
        return Booted(
            via="kexec", boot_id="b", release="6.18", command_line=wanted.words, cgroup=2, seconds=9
        )


@dataclass
class Asked(FakeStation):
    """Keeps what device each question before a run is about."""

    devices: list[dict[str, Any]] = field(default_factory=list)

    def foresee(self, setup: Setup) -> Foreseen:
        self.devices.append(setup.experiment["dut"])
        return super().foresee(setup)


def made(
    folder: Path, boots: Boots, text: str = TEXT, *, resume: bool = False
) -> list[dict[str, Any]]:
    source = folder / "e.yaml"
    source.write_text(text)
    out = folder / "out"
    station = FakeStation()
    campaign = Campaign(out, resume, stations=everywhere(station), boots=boots)
    found = run_experiment(read_experiment(source), source, campaign)
    return [json.loads(one.record.read_text()) for one in found]


def test_runs_of_one_boot_follow_each_other_within_a_repeat(tmp_path: Path) -> None:
    boots = Boots()
    records = made(tmp_path, boots)
    one = [PLAIN, PLAIN, NOHZ, NOHZ]
    assert boots.asked == [(1, each) for each in one] + [(2, each) for each in one]
    # The plan's numbers are as they are without boots.
    lines = [
        (record["variables"]["dut.boot"], record["boot"]["command_line"]) for record in records
    ]
    assert lines == [("", ""), ("nohz_full={cpus}", "nohz_full=1,2")] * 4


def test_a_check_asks_the_host_of_a_guest_for_no_boot_but_the_guest_for_its_own(
    tmp_path: Path,
) -> None:
    source = tmp_path / "e.yaml"
    source.write_text(
        "name: a\ntraffic: {}\ndut: {platform: vm, tuning: full, kernel: rt, boot: mce=off, "
        "host_kernel: rt, host_boot: nohz_full=1}\n"
    )
    station = Asked(name="device")
    check_experiment(read_experiment(source), tmp_path / "out", everywhere(station), Boots())
    [dut] = station.devices
    assert (dut["kernel"], dut["boot"], dut["tuning"]) == ("rt", "mce=off", "full")
    assert (dut["host_kernel"], dut["host_boot"]) == (None, "")


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({'  dut.boot: ["", "nohz_full={cpus}"]\n': ""}, []),
        # A guest boots its own kernel; its host is booted by keys of its own.
        (
            {FORWARDERS: "dut.platform: [bare-metal, vm]", **ONCE},
            [(1, PLAIN), (1, NOHZ), (1, None), (1, None)],
        ),
        (
            {FORWARDERS: "dut.platform: [vm]", "2]}": "2], host_kernel: rt}", **ONCE},
            [(1, Wanted("rt", ""))] * 2,
        ),
        (
            {FORWARDERS: "dut.platform: [vm]", "dut.boot:": "dut.host_boot:", **ONCE},
            [(1, PLAIN), (1, NOHZ)],
        ),
        (
            {
                FORWARDERS: "dut.platform: [container]",
                "  dut.boot:": "  dut.cgroup: [1, 2]\n#",
                **ONCE,
            },
            [(1, Wanted(None, words)) for words in BOOT.values()],
        ),
    ],
)
def test_who_is_booted_is_whom_a_run_asks_for(
    tmp_path: Path, changes: dict[str, str], asked: list[tuple[int, Wanted | None]]
) -> None:
    text = TEXT
    for old, new in changes.items():
        text = text.replace(old, new)
    made(tmp_path, boots := Boots(), text)
    assert boots.asked == asked


def test_runs_of_a_boot_that_fails_fail_and_resume_makes_them(tmp_path: Path) -> None:
    records = made(tmp_path, Boots(NOHZ))
    for record in records:
        failed = record["variables"]["dut.boot"] != ""
        assert record["status"] == ("failed" if failed else "done")
        assert record["error"] == ("dut did not come back" if failed else None)
    boots = Boots()
    assert {one["status"] for one in made(tmp_path, boots, resume=True)} == {"done"}
    assert boots.asked == [(1, NOHZ), (1, NOHZ), (2, NOHZ), (2, NOHZ)]


@pytest.mark.parametrize(
    "key", ["vary: {{dut.boot: ['', {0}]}}", "cases: [{{dut.boot: ''}}, {{dut.boot: {0}}}]"]
)
def test_a_check_of_runs_that_boot_does_not_ask_for_this_boot(tmp_path: Path, key: str) -> None:
    """Also where other runs ask for what this machine was booted with."""
    source, word = tmp_path / "e.yaml", Path("/proc/cmdline").read_text().split()[0]
    source.write_text(f"name: a\ntraffic: {{}}\n{key.format(json.dumps(word))}\n")
    found = check_experiment(read_experiment(source), tmp_path / "out", everywhere(Here()), Boots())
    said = [one.message for run in found.runs for one in run.problems]
    assert len(found.runs) == 2 and not [one for one in said if "dut.boot" in one]


def test_a_check_asks_each_machine_about_its_part_and_no_boot_about_another(
    tmp_path: Path,
) -> None:
    source = tmp_path / "e.yaml"
    source.write_text(
        "name: a\ntraffic: {}\ndut: {platform: container, cgroup: 2, tuning: full}\n"
        "vary: {dut.boot: [quiet, nohz_full=1, mce=off]}\n"
    )
    sends, forwards = FakeStation(name="sender"), Asked(name="device")
    found = check_experiment(
        read_experiment(source),
        tmp_path / "out",
        {"dut": forwards, "generator": sends, "timestamper": sends},
        Boots(Wanted(None, f"mce=off {BOOT[2]}")),
    )
    assert not (tmp_path / "out").exists()
    assert found.boots == 3
    both = ["device: no dut", "sender: no generator"]
    assert [[one.message for one in run.problems] for run in found.runs] == [
        both, both, ["dut has no such kernel", *both],
    ]  # fmt: skip
    note = f"dut: it is booted with nohz_full=1 {BOOT[2]}"
    assert [one.message for one in found.runs[1].notes] == [note]
    assert {(one["boot"], one["tuning"], one.get("cgroup")) for one in forwards.devices} == {
        ("", "runtime", None)
    }
    gone = MachineError("device cannot be reached by ssh")
    away = FakeStation(name="device", fails={("site", "foresee"): gone})
    lost = check_experiment(read_experiment(source), tmp_path / "out", everywhere(away))
    assert [one.message for one in lost.problems] == [str(gone)]
    assert not lost.can_run
