"""What is compared besides ranks: resources, caches, judgements, counters, two clocks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import experiment_folders
import pytest
from comparisons import SECOND, sample, write_run
from made_records import made, rewrite
from scipy import stats
from two_clocks import TwoClocks

from tailtap.analysis.compare import compare_runs
from tailtap.analysis.compare.comparison import read
from tailtap.analysis.compare.configurations import aspects_of, device_variables, load_of
from tailtap.analysis.compare.resources import JUDGEMENTS, cache, judge, resources
from tailtap.analysis.compare.significance import smallest_p
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.analysis.runs.run import Origin, Run
from tailtap.lab.platforms import PLATFORMS
from tailtap.records.compare import CompareRecord, Counters, Grade, Resources
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
    # No tick met the device at work, but it was not idle all the time, nor was all that its own; or
    # a hypervisor took its CPU away while it was idle: both times count that.
    for name, user, idle, iowait, steal, least, most in (
        ("unseen", 0, SECOND, SECOND // 4, SECOND // 4, 0.25, 0.25),
        ("twice", SECOND // 10, 2 * SECOND, 0, SECOND, 1e-9, 0.1),
    ):
        spent = {"user": user, "system": 0, "idle": idle, "iowait": iowait}
        changes = {"cpu_ns": {"1": spent}, "steal_ns": {"1": steal}}
        write_run(tmp_path / name, 1, {"dut.platform": "container"}, changes=changes)
        assert least <= (resources(read([("", tmp_path / name)])).cpus or 0) <= most
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


PACKETS, CAME = 400, 1000
REPEATS = 6
COUNTED = ("bare-metal", "container")


def events_of(platform: str, repeat: int) -> tuple[dict[str, int | None], dict[str, int]]:
    """Events and kinds: the container takes more instructions, and as many interrupts."""
    more = 500_000 if platform == "container" else 0
    events = {"instructions": 1_000_000 + more + 1000 * repeat, "branches": None}
    kinds = {"LOC": 300 + 7 * (repeat % 3)}
    return events, kinds if platform == "bare-metal" else {**kinds, "RES": 50 * (repeat > 3)}


def write_counted(folder: Path) -> None:
    for number, (platform, repeat) in enumerate(product(COUNTED, range(1, REPEATS + 1)), 1):
        events, kinds = events_of(platform, repeat)
        counted = {
            "scope": "dut.cpus", "cpus": [1], "elapsed_ns": 10**9, "events": events,
            "estimated": [], "by_cpu": {"1": events},
            "kinds": {name: count for name, count in kinds.items() if count},
        }  # fmt: skip
        changes = {"taps": {"ingress": {"seen": CAME - 100, "other": 100}},
                   "counters": {"run": counted}}  # fmt: skip
        experiment_folders.write_run(
            folder, number, {"dut.platform": platform}, repeat=repeat, packets=PACKETS,
            changes=changes,
        )  # fmt: skip


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> Counters:
    folder = tmp_path_factory.mktemp("counted")
    write_counted(folder)
    [load] = compare_runs([("", folder)]).loads
    return load.counters


def test_each_counter_has_its_mean_and_deviation_per_packet(counters: Counters) -> None:
    rows = {(row.counter, row.configuration.partition(" ")[0]): row for row in counters.counted}
    assert {counter for counter, _ in rows} == {"instructions", "LOC", "RES"}
    assert [row.counter for row in counters.counted][:2] == ["instructions"] * 2  # chosen first
    for platform in COUNTED:
        row = rows["instructions", platform]
        events = [events_of(platform, repeat)[0] for repeat in range(1, REPEATS + 1)]
        values = [(one["instructions"] or 0) / CAME for one in events]
        assert row.chosen and row.values == values
        assert row.mean == fmean(values)
        assert row.deviation == pytest.approx(stdev(values))
    # A kind that did not occur was counted: as none.
    assert rows["RES", "bare-metal"].values == [0.0] * REPEATS
    assert rows["RES", "container"].values == [0, 0, 0, 0.05, 0.05, 0.05]
    assert not rows["RES", "container"].chosen


def test_what_a_container_takes_to_start_and_end_is_compared_as_well(tmp_path: Path) -> None:
    """The packets cost the same: the difference is outside of their time."""
    write_counted(tmp_path)
    for path in tmp_path.glob("runs/*/run.json"):
        told = json.loads(path.read_text())
        repeat, platform = told["repeat"], told["variables"]["dut.platform"]
        run = told["counters"]["run"] | {"events": {"branches": 1000 + repeat}, "kinds": {}}
        whole = {"branches": 5000 * (1 + (platform == "container")) + repeat}
        lifetime = {**run, "scope": "machine", "events": whole}
        rewrite(path, counters={"run": run, "lifetime": lifetime})
    [load] = compare_runs([("", tmp_path)]).loads
    pairs = {pair.counter: pair for pair in load.counters.comparisons}
    assert {name: pair.answer for name, pair in pairs.items()} == {
        "branches": "not shown", "branches (lifetime)": "more"
    }  # fmt: skip
    assert pairs["branches (lifetime)"].difference == pytest.approx(5000 / CAME)


def test_differences_are_tested_over_repeats(counters: Counters) -> None:
    """As scipy tests them; an interval holds the differences of all pairs but the outermost."""
    pairs = {pair.counter: pair for pair in counters.comparisons}
    instructions, timers, moves = pairs["instructions"], pairs["LOC"], pairs["RES"]
    assert (instructions.answer, timers.answer, moves.answer) == ("more", "not shown", "not shown")
    assert instructions.difference == pytest.approx(500)
    assert instructions.difference_low == pytest.approx(497)
    assert instructions.difference_high == pytest.approx(503)
    assert instructions.ratio == pytest.approx(1.5, abs=0.01)
    one, other = (row.values for row in counters.counted if row.counter == "instructions")
    assert instructions.p == pytest.approx(stats.mannwhitneyu(one, other, method="exact").pvalue)
    # One event is a family by itself, and the two kinds are another.
    assert instructions.p_corrected == instructions.p
    assert moves.p_corrected == pytest.approx(2 * moves.p)
    assert moves.ratio is None and moves.difference_high == pytest.approx(0.05)


MICRO = 1_000
CAPTURED = 5


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repeats of a device, and of one that takes 4 us more."""
    folder = tmp_path_factory.mktemp("captures")
    for name, least_ns in (("quick", 20 * MICRO), ("slow", 24 * MICRO)):
        for repeat in range(CAPTURED):
            clocks = TwoClocks(least_ns=least_ns, mean_ns=300, packets=1_000)
            clocks.write(folder / f"{name}-{repeat}", repeat)
    return folder


def compared(captures: Path, out: Path, within_ns: int) -> CompareRecord:
    sources = []
    for folder in sorted(captures.iterdir()):
        pair = folder / "ingress.stamps", folder / "egress.stamps"
        clocks = known(-within_ns, within_ns) if within_ns else None
        evaluate(*pair, clocks=clocks).write(out / folder.name)
        sources.append((folder.name.partition("-")[0], out / folder.name))
    return compare_runs(sources, 0.5)


@pytest.mark.parametrize(
    ("within_ns", "shown"),
    [(0, True), (1 * MICRO, True), (1_900, True), (2_300, False), (9_000, False)],
)
def test_a_difference_is_shown_at_both_ends(
    captures: Path, tmp_path: Path, within_ns: int, shown: bool
) -> None:
    found = compared(captures, tmp_path, within_ns)
    [load] = found.loads
    [pair] = load.comparisons
    assert pair.significant is shown
    assert pair.ratio == pytest.approx(24.2 / 20.2, rel=0.01)
    assert pair.ratio_low is not None and pair.ratio_high is not None
    # The bounds of the ratio hold what the clocks leave open.
    assert pair.ratio_low <= (24_200 - within_ns) / (20_200 + within_ns) * 1.01
    assert pair.ratio_high >= (24_200 + within_ns) / (20_200 - within_ns) * 0.99
    assert load.configurations[0].repeats[0].within_ns == within_ns
    assert any("two-clocks" in one.message for one in found.warnings) is bool(within_ns)
