"""The lab's links, with nothing sent through them."""

from __future__ import annotations

import time

import pytest

from tailtap.errors import MachineError
from tailtap.topology.lab import INGRESS_TAP, Lab

SECOND_AND_A_HALF = 1.5


def test_steering_is_read_back() -> None:
    with Lab(64) as lab:
        lab.wait_until_up()
        lab.steer(lab.tap, INGRESS_TAP, [0])
        with pytest.raises(MachineError) as caught:
            lab.steer(lab.tap, INGRESS_TAP, [8000])
        assert "\n" not in str(caught.value)
        assert "these CPUs online" in str(caught.value)


def test_nothing_happens_to_links_that_are_up() -> None:
    with Lab(64) as lab:
        lab.connect(lab.add_namespace("dut"), [0])
        lab.wait_until_up()
        # The kernel tells of what it has put off once a second, and wakes up who listens.
        watching = lab.watch()
        time.sleep(SECOND_AND_A_HALF)
        news = [line for process in watching for line in process.read_available() or ()]
        for process in watching:
            process.close()
    assert news == []
