"""The kernel's counters, where interrupts were handled, and the sampler of interrupts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from observing import NoLinks
from pydantic import TypeAdapter, ValidationError

from tailtap.base.errors import MachineError
from tailtap.lab.instruments.interrupts import (
    Interrupts,
    Sampler,
    housekeeping,
    sample_interrupts,
    sampling_ns,
)
from tailtap.lab.instruments.kernel_counters import (
    Counters,
    Handled,
    counted,
    warnings_of,
)
from tailtap.lab.instruments.observing import Scope
from tailtap.records.interrupts import FILE, read_samples
from tailtap.records.record import Notice, as_json

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def counters_in(
    tmp_path: Path, softnet: str, rx: str, steal: tuple[int, int], system: int = 3
) -> Path:
    (tmp_path / "net").mkdir(parents=True)
    (tmp_path / "net/softnet_stat").write_text(softnet)
    (tmp_path / "softirqs").write_text(
        f"                    CPU0       CPU2\n      NET_TX:          1          2\n"
        f"      NET_RX: {rx}\n       BLOCK:          0          0\n"
    )
    (tmp_path / "stat").write_text(
        f"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 {steal[0]} 9 10\n"
        f"cpu2 1 2 {system} 4 5 6 7 {steal[1]} 9 10\nintr 5\n"
    )
    return tmp_path


def test_differences_by_cpu(tmp_path: Path) -> None:
    zeros = " 00000000" * 6
    before = Counters.read(
        counters_in(
            tmp_path / "a",
            f"00000010 00000000 00000000{zeros} 00000001 00000000 00000000 00000000\n"
            f"fffffff0 00000002 00000004{zeros} 00000000 00000000 00000000 00000002\n",
            "100 200",
            (5, 7),
        )
    )
    after = Counters.read(
        counters_in(
            tmp_path / "b",
            f"00000020 00000000 00000000{zeros} 0000000b 00000000 00000000 00000000\n"
            f"00000010 00000003 00000007{zeros} 00000000 00000000 00000000 00000002\n",
            "150 201",
            (5, 10),
            system=8,
        )
    )
    delta = after.since(before)
    assert delta.softnet == {
        0: {"processed": 16, "dropped": 0, "squeezed": 0, "received_rps": 10, "softirq_net_rx": 50},
        2: {"processed": 32, "dropped": 1, "squeezed": 3, "received_rps": 0, "softirq_net_rx": 1},
    }
    assert delta.steal_ns == {0: 0, 2: 3 * TICK_NS}
    idle = dict.fromkeys(("user", "nice", "system", "idle", "iowait", "irq", "softirq"), 0)
    assert delta.cpu_ns == {0: idle, 2: {**idle, "system": 5 * TICK_NS}}


def test_old_kernels_do_not_name_the_cpu(tmp_path: Path) -> None:
    columns = "00000001 " + "00000000 " * 9
    counters = Counters.read(counters_in(tmp_path, f"{columns}\n{columns}\n", "1 2", (0, 0)))
    assert sorted(counters.softnet) == [0, 1]


ROW = {"processed": 9, "dropped": 0, "squeezed": 0, "received_rps": 0, "softirq_net_rx": 9}
SCOPE = Scope((1,), (0,), NoLinks())


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        (Counters({1: ROW}, {0: 10_000_000, 1: 10_000_000}), []),
        (Counters({1: ROW}, {0: 0, 1: 10_000_001}), ["steal"]),
        (Counters({1: ROW}, {0: 10_000_001, 1: 0}), ["steal"]),
        (Counters({1: ROW}, {0: 0, 2: 10_000_001}), []),
        (Counters({1: {**ROW, "dropped": 1}}, {}), ["backlog-drops"]),
    ],
)
def test_each_limit(counters: Counters, said: list[str]) -> None:
    """One per cent of a measured CPU's time; a single packet."""
    found = warnings_of(counters, 1_000_000_000, (0, 1))
    assert [warning.code for warning in found] == said


BEFORE = """\
           CPU0       CPU2
  0:         35          0   IO-APIC   2-edge      timer
 45:       1000          7   PCI-MSI 524288-edge      eth1-rx-0
 46:          3          0   PCI-MSI 524289-edge      eth1-tx-0
 47:          0          0   PCI-MSI 524290-edge      eth1
NMI:          0          0   Non-maskable interrupts
"""
AFTER = BEFORE.replace("1000          7", "1001        907").replace(
    "  3          0", "  3         20"
)
SENT = {"45": ("tt-in", (2,)), "46": ("tt-out", (2,)), "47": ("tt-out", ())}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for number, effective in (("45", "2"), ("46", "2"), ("47", "0")):
        folder = tmp_path / "irq" / number
        folder.mkdir(parents=True)
        (folder / "smp_affinity_list").write_text("2\n" if number != "47" else "0,2\n")
        (folder / "effective_affinity_list").write_text(f"{effective}\n")
    (tmp_path / "interrupts").write_text(BEFORE)
    return tmp_path


def test_counters_of_cpus_that_are_on() -> None:
    assert counted(BEFORE)["45"] == {0: 1000, 2: 7}
    assert counted(BEFORE)["NMI"] == {0: 0, 2: 0}
    assert counted("") == {}


def test_what_came_to_another_cpu_is_told(proc: Path) -> None:
    handled = Handled(SENT, proc)
    (proc / "interrupts").write_text(AFTER)
    reading = handled.stop()
    facts = as_json(reading.facts)["card_interrupts"]
    assert facts["45"] == {
        "port": "tt-in",
        "cpus": [2],
        "affinity": "2",
        "effective": "2",
        "handled": {"0": 1, "2": 900},
    }
    assert facts["46"]["handled"] == {"2": 20}
    assert (facts["47"]["handled"], facts["47"]["affinity"]) == ({}, "0,2")
    assert reading.warnings == (
        Notice(
            "interrupts-elsewhere",
            "CPU 0 handled 1 of the interrupts 45 of tt-in, which were sent to 2 and go to 2",
        ),
    )


def test_an_interrupt_that_was_left_to_the_kernel_is_nowhere_else(proc: Path) -> None:
    handled = Handled({"45": ("tt-in", ())}, proc)
    (proc / "interrupts").write_text(AFTER)
    reading = handled.stop()
    assert reading.facts.card_interrupts["45"].handled == {"0": 1, "2": 900}
    assert reading.warnings == ()


MS = 1_000_000
CPUS = sorted(os.sched_getaffinity(0))


def scope(folder: Path | None, sampling: int | None = 5 * MS) -> Scope:
    return Scope((CPUS[-1],), (), NoLinks(), folder=folder, sampling_ns=sampling)


def test_a_run_has_samples_of_this_machine_by_the_clock_of_the_taps(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    observation = sample_interrupts(scope(tmp_path))
    assert observation is not None
    time.sleep(0.2)
    reading = observation.stop()
    after = time.monotonic_ns()
    assert list(reading.files) == [FILE]
    facts = as_json(reading.facts)["interrupts"]
    samples = read_samples(tmp_path / FILE)
    assert len(samples.times_ns) == facts["samples"] >= 2
    assert before <= samples.times_ns[0] and samples.times_ns[-1] <= after
    assert samples.took_ns is not None
    assert sum(samples.took_ns) == facts["took_ns"]["sum"] < after - before
    assert facts["took_ns"]["median"] <= facts["took_ns"]["max"]
    assert any(name.startswith("NET_RX_softirq_CPU") for name in samples.counters)
    timers = [values for name, values in samples.counters.items() if name.startswith("LOC_")]
    for values in timers:
        numbers = [value for value in values if value is not None]
        assert numbers == sorted(numbers)
    # Every slot was taken or missed, but for the last sample, which ends it.
    slots = (samples.times_ns[-1] - samples.times_ns[0]) // (5 * MS)
    assert abs(facts["samples"] + facts["missed"] - 1 - slots) <= 2


def test_a_sampler_that_comes_late_says_so(tmp_path: Path) -> None:
    """Nobody can sample once a microsecond."""
    observation = Sampler(scope(tmp_path), 1_000, tmp_path)
    time.sleep(0.05)
    reading = observation.stop()
    assert [warning.code for warning in reading.warnings] == ["interrupts-late"]
    facts = as_json(reading.facts)["interrupts"]
    assert facts["late"] + facts["missed"] > 0
    assert f"{facts['late'] + facts['missed']} of " in reading.warnings[0].message


def test_a_kernel_that_shows_nothing_ends_the_run(tmp_path: Path) -> None:
    observation = Sampler(scope(tmp_path), MS, tmp_path, proc=tmp_path / "none")
    with pytest.raises(MachineError, match="set interrupts: none"):
        observation.stop()
    observation.close()


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_it_works_on_a_cpu_that_is_not_measured(tmp_path: Path) -> None:
    first, *others = CPUS
    assert housekeeping(Scope((first,), (), NoLinks())) in others
    assert housekeeping(Scope(tuple(others), (first,), NoLinks())) == first
    assert housekeeping(Scope(tuple(CPUS), (first,), NoLinks())) in CPUS


def test_the_key_of_an_experiment() -> None:
    key = TypeAdapter(Interrupts)

    def period(value: object) -> int | None:
        return sampling_ns(key.validate_python(value))

    assert period("none") is None
    assert period("counters") == 100 * MS
    assert period({"counters": {"period": "10 ms"}}) == 10 * MS
    with pytest.raises(ValidationError, match="a sample takes too long"):
        period({"counters": {"period": "10 us"}})
