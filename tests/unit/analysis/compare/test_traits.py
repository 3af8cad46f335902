"""Resources, caches and judgements, from records as `tailtap run` writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from comparisons import SECOND, sample, write_run
from made_records import made

from tailtap.analysis.compare import compare_runs
from tailtap.analysis.compare.comparison import read
from tailtap.analysis.compare.configurations import aspects_of, device_variables, load_of
from tailtap.analysis.compare.resources import JUDGEMENTS, cache, cpu_list, judge, resources
from tailtap.analysis.compare.significance import smallest_p
from tailtap.analysis.runs.run import Origin, Run
from tailtap.lab.platforms import PLATFORMS
from tailtap.records.compare import Grade, Resources
from tailtap.records.machine import BUILT_IN, Traits


def with_caches(packages: list[str] | None, caches: list[tuple[str, str]], **cpu: Any) -> Run:
    topology = {
        "packages": packages,
        "caches": [
            {"level": level, "type": "Unified", "size": "1K", "cpus": cpus}
            for level, cpus in caches
        ],
    }
    return sample("vm", 1, 1e4, more={"environment": {"topology": topology, "cpu": cpu},
                                      "parameters": {"dut": {"cpus": [1]}}})  # fmt: skip


def test_the_cache_of_an_epyc_is_separated_and_of_a_xeon_shared() -> None:
    groups = [("3", f"{first}-{first + 3}") for first in range(0, 32, 4)]
    epyc = cache(with_caches(["0-31"], [*groups, *(("2", str(cpu)) for cpu in range(32))]))
    assert epyc is not None
    assert (epyc.layout, epyc.level, epyc.groups, epyc.others) == ("separated", "3", 8, (0, 2, 3))
    xeon = cache(with_caches(["0-11", "12-23"], [("3", "0-11"), ("3", "12-23")], hypervisor=True))
    assert xeon is not None
    assert (xeon.layout, xeon.groups, xeon.virtual) == ("shared", 2, True)
    assert xeon.others == (0, *range(2, 12))
    assert cache(sample("vm", 1, 1e4)) is None
    unpackaged = cache(with_caches(None, [("2", "0"), ("2", "1")]))
    assert unpackaged is not None and unpackaged.layout == "separated" and not unpackaged.others


def test_cpu_lists() -> None:
    assert cpu_list("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert cpu_list("") == cpu_list("none") == set()


GRADES = get_args(Grade)


def test_judgements_order_the_platforms_as_published() -> None:
    for layout in ("separated", "shared"):
        grades = [judge(BUILT_IN[name], layout) for name in ("container", "vm", "bare-metal")]
        places = [GRADES.index(found.grade) for found in grades if found]
        assert places == sorted(set(places)) and len(places) == 3
    for separated, shared, reason in JUDGEMENTS.values():
        assert GRADES.index(shared) <= GRADES.index(separated) and reason
    assert judge(BUILT_IN["wire"], "shared") is None and judge(None, None) is None


def test_traits_are_those_that_the_run_kept() -> None:
    assert {name: kind.traits for name, kind in PLATFORMS.items()} == BUILT_IN
    asked = {"dut": {"platform": "vm"}}
    assert Run("a", record=made(parameters=asked)).traits is None
    kept = {"has_dut": True, "own_kernel": False, "virtualization": "container", "later": 1}
    stored = made(parameters=asked, traits=kept)
    assert Run("a", record=stored).traits == Traits(virtualization="container")


def test_resources_are_those_of_the_device(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run(tmp_path, number, {"dut.platform": "container"}, repeat=number)
    assert resources(read([("", tmp_path)])) == Resources(1, 0.25, 0.5 * SECOND / 20_000, 3_000_000)
    # No tick met the device at work, but it was not idle all the time, nor was all that its own.
    unseen = {
        "cpu_ns": {"1": {"user": 0, "system": 0, "idle": SECOND, "iowait": SECOND // 4}},
        "steal_ns": {"1": SECOND // 4},
    }
    write_run(tmp_path / "unseen", 1, {"dut.platform": "container"}, changes=unseen)
    assert resources(read([("", tmp_path / "unseen")])).cpus == 0.25
    # A hypervisor took the device's CPU away while it was idle: both times count that.
    twice = {
        "cpu_ns": {"1": {"user": SECOND // 10, "system": 0, "idle": 2 * SECOND, "iowait": 0}},
        "steal_ns": {"1": SECOND},
    }
    write_run(tmp_path / "twice", 1, {"dut.platform": "container"}, changes=twice)
    found = resources(read([("", tmp_path / "twice")])).cpus
    assert found is not None and 0 < found < 0.1
    assert resources([sample("vm", 1, 1e4)]) == Resources()
    dut = {"parameters": {"dut": {"platform": "vm", "memory": 10**9}}, "forwarder_memory": 1}
    assert resources([sample("vm", 1, 1e4, more=dut)]).memory == 10**9
    told = {**dut, "platform": {"memory_used": 7 * 10**8}}
    assert resources([sample("vm", 1, 1e4, more=told)]).memory == 7 * 10**8


def test_a_card_is_known_by_its_driver() -> None:
    card = {"interface": "ens1f0", "driver": "ice", "bus_address": "0000:3b:00.0"}
    run = sample("bare-metal", 1, 1e4, more={"platform": {"cards": {"tt-in": card}}})
    assert aspects_of(run)["nic"] == "ice"
    assert "nic" not in aspects_of(sample("bare-metal", 1, 1e4))


def test_what_is_at_the_other_ends_of_cables_is_no_aspect_of_the_device() -> None:
    run = sample("bare-metal", 1, 1e4)
    varied = {"dut.ports": "['a0', 'a1']", "tap.ports": "['b0', 'b1']"}
    cabled = replace(run, variables={**run.variables, **varied})
    assert aspects_of(cabled) == {**aspects_of(run), "nic": "['a0', 'a1']"}
    # They are told apart all the same: runs on other cables are no repeats.
    assert device_variables(cabled) == {**run.variables, **varied}


def test_the_kernel_is_that_of_the_device_and_its_tuning_another_thing() -> None:
    here = {"kernel": {"release": "6.18.5", "preemption": "none"}}
    guest = {"kernel": {"kind": "vanilla", "release": "6.1.0-37"}}

    def aspects(dut: dict[str, str], platform: dict[str, Any]) -> dict[str, str]:
        more = {"parameters": {"dut": dut}, "environment": here, "platform": platform}
        return aspects_of(replace(sample("vm", 1, 1e4, more=more), variables={}))

    found = aspects({"platform": "vm", "boot": "isolcpus={cpus}"}, guest)
    assert (found["kernel"], found["tuning"]) == ("6.1.0-37 vanilla", "isolcpus={cpus}")
    found = aspects({"platform": "bare-metal", "boot": ""}, {"kernel": {"release": "6.18.5"}})
    assert found["kernel"] == "6.18.5 none"
    assert "tuning" not in found
    assert aspects({"platform": "vm", "kernel": "rt"}, guest)["kernel"] == "rt"
    varied = {"dut.kernel": "rt", "dut.boot": "audit=0"}
    found = aspects_of(replace(sample("vm", 1, 1e4), variables=varied))
    assert (found["kernel"], found["tuning"]) == ("rt", "audit=0")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("measurements/container/nohz/non-optimized",
         {"platform": "container", "networking": "user space", "kernel": "nohz",
          "tuning": "non-optimized"}),
        ("measurements/kernel/rt-optimized",
         {"platform": "container", "networking": "kernel space", "kernel": "rt",
          "tuning": "optimized"}),
        ("measurements/bare-metal/vanilla-non-optimized",
         {"platform": "bare-metal", "networking": "user space", "kernel": "vanilla",
          "tuning": "non-optimized"}),
        ("measurements/v2", {"cgroup": "2"}),
        ("scenario1-l3/rt-optimized",
         {"kernel": "rt", "tuning": "optimized", "forwarder": "l3",
          "machine": "that of tree, scenario 1"}),
    ],
)  # fmt: skip
def test_published_folders_say_what_was_measured(place: str, expected: dict[str, str]) -> None:
    origin = Origin("tree", place, f"/tree/{place}/latencies-pre-rate10000-repeat0.pcap.zst")
    run = Run(
        "run",
        variables={"traffic.rate": "10 kpkt/s"},
        record=made(parameters={"traffic": {"rate": 10_000}}),
        origin=origin,
    )
    assert aspects_of(run) == {"machine": "that of tree", **expected}
    assert load_of(run) == {"rate": 10_000}


def test_an_experiment_has_all_traits(tmp_path: Path) -> None:
    number = 0
    for platform, scale in (("bare-metal", 1.0), ("container", 2.0)):
        for repeat in range(1, 5):
            number += 1
            write_run(tmp_path, number, {"dut.platform": platform}, scale=scale, repeat=repeat,
                      packets=60_000)  # fmt: skip
    found = compare_runs([("", tmp_path)])
    (load,) = found.loads
    assert [(one.label, one.rank and one.rank.best) for one in load.configurations] == [
        ("bare-metal", 1),
        ("container", 2),
    ]
    assert all(pair.runs_apart for pair in load.comparisons)
    bare, container = load.configurations
    assert bare.isolation and container.isolation
    assert (bare.isolation.grade, container.isolation.grade) == ("strong", "fair")
    assert container.cache is not None and container.cache.others == (0,)
    assert bare.predictability is not None
    assert (bare.predictability.runs, bare.predictability.models) == (4, 4)
    checks = {check.name: check for check in found.recommendations}
    assert checks["virtualisation"].answer == "not met"
    assert "container over bare-metal: x1." in checks["virtualisation"].because
    assert checks["measurement set-up"].answer == "not met"
    assert "8 of 8 runs were stamped in software" in checks["measurement set-up"].because
    assert checks["loss"].because == "no run lost more than 0.1 %: none at all"
    assert checks["kernel"].because == "only one kernel was measured: 6.18.5 none"
    assert checks["NIC"].because == "no result says its NIC"
    assert "10 kpkt/s, p99.9: bare-metal, " in found.advice[0]


def test_the_page_has_the_judgements_and_what_repeats_can_reach() -> None:
    page = (Path(__file__).parents[4] / "docs/howto/compare.md").read_text("utf-8")
    kinds: dict[str, list[str]] = {}
    for platform, traits in BUILT_IN.items():
        if traits.has_dut:
            kinds.setdefault(traits.virtualization, []).append(platform)
    for virtualization, (separated, shared, reason) in JUDGEMENTS.items():
        platforms = kinds[virtualization]
        assert f"| {', '.join(platforms)} | {separated} | {shared} | {reason} |" in page
    for repeats in (2, 3, 4, 5, 8):
        assert f"| {repeats} | {smallest_p(repeats, repeats):.2g} |" in page
