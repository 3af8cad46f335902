"""The lab's links, with nothing sent through them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable

import pytest
from killed import Work, killed_at_every_step
from labtools import Machine, wait_for

from tailtap.base.errors import MachineError
from tailtap.lab.topology.compiler import receive_steering
from tailtap.lab.topology.graphs import DUT, FROM_DUT, TAPS, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.remote.local import Process

SECOND_AND_A_HALF = 1.5


def test_steering_is_read_back() -> None:
    """The kernel has what was asked for; what it does not take is an error, and changes nothing."""

    def steer(cpu: int) -> None:
        lab.make(receive_steering(lab.name_of(TAPS), FROM_DUT, [cpu]))

    def steered() -> str:
        mask = f"/sys/class/net/{FROM_DUT}/queues/rx-0/rps_cpus"
        command = ["ip", "netns", "exec", lab.name_of(TAPS), "cat", mask]
        return subprocess.check_output(command, text=True).strip("0,\n")

    with Lab(smallest()) as lab:
        lab.wait_until_up()
        assert steered() == ""
        steer(0)
        assert steered() == "1"
        with pytest.raises(MachineError) as caught:
            steer(8000)
        assert "\n" not in str(caught.value)
        assert "these CPUs online" in str(caught.value)
        assert steered() == "1"


def test_nothing_happens_to_links_that_are_up() -> None:
    with Lab(smallest("namespace", [0])) as lab:
        lab.add({DUT: ()})
        lab.wait_until_up()
        # The kernel tells of what it has put off once a second, and wakes up who listens.
        watching = lab.watch()
        time.sleep(SECOND_AND_A_HALF)
        assert news(watching) == []
        # They would have said so.
        delete = ["ip", "-n", lab.name_of(TAPS), "link", "delete", FROM_DUT]
        subprocess.run(delete, check=True)
        wait_for(lambda: FROM_DUT in map(lab.deleted_port, news(watching)), "what would be said")
        for process in watching:
            process.close()


def news(watching: Iterable[Process]) -> list[str]:
    """What the processes have printed since they were asked last."""
    return [line for process in watching for line in process.read_available() or ()]


@pytest.mark.parametrize("reboot", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lab_that_is_killed_at_any_step_leaves_nothing(machine: Machine, reboot: bool) -> None:
    steps, kinds = killed_at_every_step(machine, "lab", reboot=reboot)
    assert steps > 40
    assert kinds == (
        {"folder", "journal"} if reboot else {"folder", "journal", "link", "namespace", "value"}
    )


@pytest.mark.apart
@pytest.mark.parametrize(
    ("work", "least", "expected"),
    [
        pytest.param(
            "lxc-start", 15, {"container", "journal", "namespace"}, marks=pytest.mark.slow
        ),
        ("crun", 15, {"oci-container", "journal", "namespace"}),
        pytest.param("runc", 15, {"oci-container", "journal", "namespace"}, marks=pytest.mark.slow),
        pytest.param(
            "podman", 15, {"podman-container", "journal", "namespace"}, marks=pytest.mark.slow
        ),
        ("huge pages", 5, {"huge-pages", "journal"}),
    ],
)
def test_what_is_killed_at_any_step_leaves_nothing(
    machine: Machine, work: Work, least: int, expected: set[str]
) -> None:
    steps, kinds = killed_at_every_step(machine, work)
    assert steps > least
    assert kinds == expected
