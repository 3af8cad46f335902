"""`tailtap explain` against what the kernel was made to do for others: the logs are the truth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from explaining import DUT, OTHER, explained, held, undisturbed
from injectors import (
    build,
    flow,
)
from namespaces import Namespace

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timed,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs a CPU beside the device's"),
]
FOREIGN = "foreign-net-rx"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return build(tmp_path_factory.mktemp("injector"))


def test_another_flow_makes_packets_late(
    program: Path, namespace: Namespace, tmp_path: Path
) -> None:
    """Its packets wait in the queue of the serving softirq, among those of the run."""
    found = explained(
        tmp_path, "tc-mirred", [lambda _: flow(program, namespace, cpu=DUT, helper=OTHER)], "300 us"
    )
    mine, _ = held(found.late, undisturbed(found.injections[0]))
    _, others = held(found.late, found.injections[0])
    blamed = found.blamed(FOREIGN)
    assert mine.sum() > 50
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()
    [row] = found.rows(FOREIGN)
    assert row["claim"] == "cause"
