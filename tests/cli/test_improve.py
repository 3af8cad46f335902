"""What `tailtap improve` and `tailtap run --against` print; the lab has their runs."""

from __future__ import annotations

import pytest
from improvements import helped, improvement, trial

from tailtap.cli.improve import print_improvement
from tailtap.cli.run import against_text
from tailtap.records.compare import AgainstRecord
from tailtap.records.printed import Left


def test_the_table_says_what_each_knob_did(capsys: pytest.CaptureFixture[str]) -> None:
    record = improvement(
        helped("groups"),
        trial("kernel-threads"),
        left=[Left(name="isolated-cpus", why="it takes a reboot")],
    )
    print_improvement(record)
    said = " ".join(capsys.readouterr().out.split())
    assert "2.1 ms (1.9 ms to 2.3 ms)" in said
    assert "x 0.33 (0.2 to 0.5) 9 helps" in said
    assert "x 0.33 (0.2 to any) 9 not shown" in said
    assert "not tried: isolated-cpus: it takes a reboot" in said
    assert "p99.9 < 1 ms: violated before (2.1 ms), holds in the end (300 us); ended: holds" in said
    typed = "sudo tailtap host apply groups --cpus 1 --role bare-metal"
    assert f"proven: groups; set them: {typed}" in said


def test_the_answer_against_a_base_says_what_it_rests_on() -> None:
    record = AgainstRecord(
        name="new", base="old", status="done", error=None, p=0.999, margin=0.05, error_rate=0.05,
        error_rate_worse=0.01,
        within_ns=1, parameters={}, base_parameters={}, started="", finished="", answer="worse",
        pairs=[[2, 1]] * 5, spoiled=1, ratio=2.0, low=1.2, high=None, runs=[],
    )  # fmt: skip
    assert against_text(record, 0.05) == (
        "worse: p99.9 against the base x 2 (1.2 to any), 5 pairs, 1 spoiled; worse is more than 5 %"
    )
