"""Runs in a virtual machine, in the report: lanes of the guest by the clock of its host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from guests import SEAT, host_hog, write_guest_run
from traced import DUT, Block, Simulated, arrivals, hog, random_blocks, simulate

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.lanes import Slice
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.show.report.causes.timeline import timeline

SECONDS = 1.0


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    random = np.random.default_rng(3)
    blocks: list[Block] = []
    for made, dur in ((hog, 1_500_000), (host_hog, 2_000_000)):
        blocks += random_blocks(made, 6, (dur, dur + 100_000), SECONDS, random)
    return simulate(arrivals(20_000, SECONDS, random), blocks, random)


@pytest.fixture(scope="module")
def causes(tmp_path_factory: pytest.TempPathFactory, simulated: Simulated) -> Causes:
    folder = write_guest_run(tmp_path_factory.mktemp("runs") / "001-guest", simulated)
    explain_runs([folder], late="100 us")
    return causes_of(finished_runs(folder)[0])


def test_what_the_guest_did_stands_where_its_host_saw_it(
    causes: Causes, simulated: Simulated
) -> None:
    """Within what the packets' stamps tell of its clock."""
    assert causes.guest is not None
    found = causes.slices([(causes.trace.started_ns, causes.trace.ended_ns)])
    hogs = [one for one in found if one.name == "hog"]
    blocks = sorted(block.start for block in simulated.blocks if block.made is hog)
    starts = np.array(sorted(one.start for one in hogs))
    assert all(one.guest and one.cpu == SEAT for one in hogs)
    assert starts.size == len(blocks)
    off = causes.guest.clock.off_ns(starts)
    assert (np.abs(starts - np.array(blocks)) <= off + 1).all()


def test_a_timeline_has_lanes_of_the_guest_below_those_of_its_host(causes: Causes) -> None:
    found = timeline(causes)
    assert found["lanes"][2:] == [f"CPU {DUT} task", *guest_lanes(found["lanes"])]
    assert guest_lanes(found["lanes"]) == [f"guest CPU {SEAT} task"]
    drawn = {
        found["lanes"][lane] for window in found["windows"] for lane in window["slices"]["lane"]
    }
    assert drawn == set(found["lanes"][2:])
    for packet in found["packets"]:
        assert packet["clock"].startswith("Lanes of the guest are drawn by its own clock")
        assert "±" in packet["clock"]


def guest_lanes(lanes: Sequence[str]) -> list[str]:
    return [lane for lane in lanes if lane.startswith("guest ")]


def test_where_the_clock_is_not_known_there_are_only_lanes_of_the_host(
    tmp_path: Path, simulated: Simulated
) -> None:
    folder = write_guest_run(tmp_path / "001-guest", simulated)
    (folder / "guest-egress.stamps").unlink()
    explain_runs([folder], late="100 us")
    causes = causes_of(finished_runs(folder)[0])
    found = timeline(causes)
    assert guest_lanes(found["lanes"]) == []
    assert {packet["clock"] for packet in found["packets"]} == {""}
    slices: list[Slice] = causes.slices([(causes.trace.started_ns, causes.trace.ended_ns)])
    assert slices and not any(one.guest for one in slices)
