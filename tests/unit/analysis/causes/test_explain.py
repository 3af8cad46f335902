"""Runs that nobody can explain, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_records import rewrite
from traced import HOG, traffic, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.base.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "001-small", traffic(1, 0.5, (HOG, 3, (500_000, 600_000))))


def without(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def saying(**changes: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "trace.json", **changes)


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "trace.events").write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "late", "says"),
    [
        (without("trace.json"), "p99.9", "cut off"),
        (without("trace.json", "trace.events"), "p99.9", "no trace: measure it with `trace: thin`"),
        (without("ingress.stamps"), "p99.9", "the stamps of the run are gone"),
        (saying(boot_id="other"), "p99.9", "another boot"),
        (saying(clock="realtime"), "p99.9", "by the clock monotonic, its trace by realtime"),
        (saying(started_ns=5, ended_ns=6), "p99.9", "another run: .* s before"),
        (saying(started_ns=10**17, ended_ns=10**17 + 1), "p99.9", "another run: .* s after"),
        (saying(schema="tailtap.trace/9"), "p99.9", "schema: 'tailtap.trace/9' is wrong"),
        (saying(cpus=[0]), "p99.9", "packets are served on CPUs 1, and traced were 0"),
        (saying(served={"by": "magic"}), "p99.9", r"served\.by: 'magic' is wrong"),
        (saying(served=None), "p99.9", "does not say by what packets are served"),
        (saying(served={}), "p99.9", r"served\.by: this key is missing"),
        (holding(b""), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"TTTR"), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"something else entirely"), "p99.9", r"trace\.events: this is no trace"),
        (without(), "p100", "lies between p0 and p100"),
        (without(), "soon", "give a percentile such as p99.9"),
        (without(), "1 s", "no packet took longer than 1 s"),
    ],
)
def test_what_is_refused(
    folder: Path, spoil: Callable[[Path], object], late: str, says: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=says):
        explain_runs([folder], late=late)
    assert not (folder / "causes.json").exists()
