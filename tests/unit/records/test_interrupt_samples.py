"""Samples of interrupts: what the kernel lists, and the papers' form."""

from __future__ import annotations

import csv
import os
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import CAPTURES, needs_captures

from tailtap.base.errors import InputError
from tailtap.records.interrupts import (
    Listing,
    parse_interrupts,
    parse_softirqs,
    read_samples,
    write_samples,
)

INTERRUPTS = """\
            CPU0       CPU2
  0:         12          0   IO-APIC   2-edge      timer
 54:          7          8   IR-PCI-MSI 2097152-edge      igb_uio
LOC:      41083       5153   Local timer interrupts
ERR:          3
MIS:          0
"""
SOFTIRQS = """\
                    CPU0       CPU1       CPU2
      NET_RX:          4          5          6
         RCU:          1          2          3
"""


def test_names_are_those_of_the_papers_files() -> None:
    found = parse_interrupts(INTERRUPTS)
    assert dict(zip(found.labels, found.values, strict=True)) == {
        "0_IO-APIC_2-edge_timer_CPU0": 12,
        "0_IO-APIC_2-edge_timer_CPU2": 0,
        "54_IR-PCI-MSI_2097152-edge_igb_uio_CPU0": 7,
        "54_IR-PCI-MSI_2097152-edge_igb_uio_CPU2": 8,
        "LOC_Local_timer_interrupts_CPU0": 41083,
        "LOC_Local_timer_interrupts_CPU2": 5153,
        "ERR_CPU0": 3,
        "MIS_CPU0": 0,
    }


def test_softirqs_follow_the_same_form() -> None:
    found = parse_softirqs(SOFTIRQS)
    assert found.labels[:3] == tuple(f"NET_RX_softirq_CPU{cpu}" for cpu in range(3))
    assert list(found.values) == [4, 5, 6, 1, 2, 3]


@needs_captures
def test_a_published_file_has_the_names_that_its_machine_listed() -> None:
    [path] = CAPTURES.glob("irq-*.csv")
    samples = read_samples(path)
    assert (len(samples.times_ns), len(samples.counters)) == (75, 166)
    assert samples.took_ns is None
    assert samples.times_ns[:2] == [75_000, 1_001_765_000]
    assert samples.counters["LOC_Local_timer_interrupts_CPU0"][:2] == [125233, 125483]
    # DPDK's driver took the cards after the third sample.
    assert samples.counters["54_IR-PCI-MSI_2097152-edge_igb_uio_CPU3"][:4] == [None] * 3 + [0]
    # Written again, it says the same.
    described = {name.rpartition("_CPU")[0] for name in samples.counters}
    assert "27_IR-PCI-MSI_3670017-edge_eno1-TxRx-0" in described


def listing(**values: int) -> Listing:
    lines = tuple((name, "", 1) for name in values)
    return Listing(("CPU0",), lines, array("Q", values.values()))


def test_a_counter_that_comes_later_has_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "interrupts.csv"
    looks = [[listing(A=1)], [listing(A=2, B=5)]]
    write_samples(path, [2_000_001_999, 3_000_000_000], [7, 8], looks)
    assert path.read_bytes() == (
        b"timestamp_us;monotonic_ns;took_ns;A_CPU0;B_CPU0\r\n"
        b"0;2000001999;7;1;\r\n"
        b"999998;3000000000;8;2;5\r\n"
    )
    samples = read_samples(path)
    assert samples.times_ns == [2_000_001_999, 3_000_000_000]
    assert samples.took_ns == [7, 8]
    assert samples.counters == {"A_CPU0": [1, 2], "B_CPU0": [None, 5]}


@given(
    st.lists(st.integers(1, 2**40), min_size=2, max_size=20),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
             max_size=4, unique_by=lambda name: " ".join(name.split())),
)  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], names: list[str]
) -> None:
    """Whatever a driver calls its interrupt: semicolons, quotes, other alphabets."""
    path = tmp_path_factory.mktemp("samples") / "interrupts.csv"
    times = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    lines = tuple((f"{place}", name, 1) for place, name in enumerate(names))
    looks = [[Listing(("CPU0",), lines, array("Q", [n] * len(names)))] for n in range(len(times))]
    write_samples(path, times, [1] * len(times), looks)
    samples = read_samples(path)
    assert samples.times_ns == times
    assert len(samples.counters) == len(names)
    assert all(values == list(range(len(times))) for values in samples.counters.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no column timestamp_us"),
        ("a;b\n1;2\n", "no column timestamp_us"),
        ("timestamp_us;A\n0;1\n", "1 samples; increments need two"),
        ("timestamp_us;A;A\n0;1;1\n1;1;1\n", "the column A is there twice"),
        ("timestamp_us;A\n0;1\n5;x\n", ":3: 'x' of A is no count"),
        ("timestamp_us;A\n0;1\n0;1\n", ":3: this sample is not later"),
        ("timestamp_us;A\n;1\n5;1\n", ":2: no timestamp_us"),
        ("timestamp_us;A\n0;1\n5;1;9\n", ":3: 3 cells under 2 columns"),
    ],
)
def test_what_is_no_file_of_samples_is_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "irq.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_samples(path)


def test_a_row_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "irq.csv"
    path.write_text("timestamp_us;A\r\n0;1\r\n5;2\r\n9")
    assert read_samples(path).counters == {"A": [1, 2]}


def test_the_form_is_what_others_read(tmp_path: Path) -> None:
    """By the csv module's own reader, as the papers' scripts do."""
    path = tmp_path / "interrupts.csv"
    write_samples(path, [5, 1_000_005], [1, 1], [[parse_interrupts(INTERRUPTS)]] * 2)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row["timestamp_us"] for row in rows] == ["0", "1000"]
    assert rows[1]["LOC_Local_timer_interrupts_CPU2"] == "5153"


def test_samples_that_hang_or_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(f"timestamp_us;A\n0;1\n1;{'9' * 5000}\n")
    with pytest.raises(InputError, match=r"samples\.csv:3: .* is no count"):
        read_samples(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="no regular file"):
        read_samples(path)
