"""The page's tables of what takes idle cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import InputError
from tailtap.base.files import write_json
from tailtap.records.machine import NoiseCause, NoiseRecord, NoisyCpu
from tailtap.records.record import as_json
from tailtap.show.report.noise import noise_of

FOUND = NoiseRecord(
    above_ns=1_000,
    boot_id="b",
    kernel="6.18",
    cpus=[
        NoisyCpu(
            cpu=2,
            elapsed_ns=2_000_000_000,
            reads=80_000_000,
            least_ns=20,
            gaps=500,
            gap_ns=10_000_000,
            unkept=0,
            median_ns=4_000,
            p99_ns=90_000,
            worst_ns=1_204_312,
        )
    ],
    causes=[
        NoiseCause(
            cause="timer", detail="tick", gaps=480, ns=4_000_000, worst_ns=90_000, share=0.002
        )
    ],
    named=0.4,
    worst=[],
    warnings=[],
)


def test_rows_are_rates_times_and_shares(tmp_path: Path) -> None:
    write_json(tmp_path / "noise.json", as_json(FOUND))
    noise = noise_of(tmp_path)
    assert noise is not None
    assert noise.above == "1 us"
    assert noise.cpus == [("2", "250", "4.000", "90.000", "1,204.312", "0.5 %")]
    assert noise.causes == [("timer", "tick", "480", "90.000", "0.2 %")]


def test_nothing_is_shown_where_nothing_was_measured(tmp_path: Path) -> None:
    assert noise_of(tmp_path) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_text('{"schema": "tailtap.noise/1"}')
    with pytest.raises(InputError, match=r"noise\.json"):
        noise_of(tmp_path)
