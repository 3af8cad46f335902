"""The kernel's counters, from texts as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from observing import NoLinks

from tailtap.lab.instruments import Scope
from tailtap.lab.instruments.kernel_counters import Counters, KernelCounters, warnings_of

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def proc(tmp_path: Path, softnet: str, rx: str, steal: tuple[int, int], system: int = 3) -> Path:
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
        proc(
            tmp_path / "a",
            f"00000010 00000000 00000000{zeros} 00000001 00000000 00000000 00000000\n"
            f"fffffff0 00000002 00000004{zeros} 00000000 00000000 00000000 00000002\n",
            "100 200",
            (5, 7),
        )
    )
    after = Counters.read(
        proc(
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
    counters = Counters.read(proc(tmp_path, f"{columns}\n{columns}\n", "1 2", (0, 0)))
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
    assert [warning["code"] for warning in found] == said


def test_a_reading_is_of_the_time_since_its_start() -> None:
    observation = KernelCounters(SCOPE)
    assert not observation.sources() and observation.trouble() is None
    reading = observation.stop()
    facts = reading.facts
    assert sorted(reading.found) == ["cpu_ns", "elapsed_ns", "softnet", "steal_ns"]
    assert 0 < (facts.elapsed_ns or 0) < 60_000_000_000
    assert facts.softnet.keys() == facts.cpu_ns.keys()
