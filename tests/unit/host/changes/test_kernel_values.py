"""Small files of the kernel, here of a recorded tree: written, read back, put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.kernel_values import KernelValue

QUEUES = "/sys/class/net/eth0/queues/rx-*/rps_cpus"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two queues and a sysctl."""
    for number, mask in enumerate(("0", "00000000,00000001")):
        folder = tmp_path / f"sys/class/net/eth0/queues/rx-{number}"
        folder.mkdir(parents=True)
        (folder / "rps_cpus").write_text(f"{mask}\n")
    (tmp_path / "proc/sys/net").mkdir(parents=True)
    (tmp_path / "proc/sys/net/backlog").write_text("1000\n")
    return tmp_path


def steering(machine: Path) -> KernelValue:
    return KernelValue([QUEUES], "00000002", "mask", root=str(machine))


def test_all_files_get_the_value_and_each_gets_its_own_back(machine: Path) -> None:
    change = steering(machine)
    before = change.read()
    assert before == {
        "/sys/class/net/eth0/queues/rx-0/rps_cpus": "0",
        "/sys/class/net/eth0/queues/rx-1/rps_cpus": "00000000,00000001",
    }
    assert not change.pending(before)
    with Journal.create(machine / "state").held(change):
        assert set(change.read().values()) == {"00000002"}
        assert change.pending(before)
        again = KernelValue.parse(change.as_json())
        assert again.read() == change.read()
    assert change.read() == before
    assert change.undo(before) is None


def test_the_kernel_may_write_a_set_of_cpus_in_another_way(machine: Path) -> None:
    change = steering(machine)
    before = change.read()
    change.apply()
    (machine / "sys/class/net/eth0/queues/rx-0/rps_cpus").write_text("00000000,00000002\n")
    assert change.undo(before) is None
    assert change.read() == before
    ranges = KernelValue(["/proc/sys/net/backlog"], "1,2,3", "cpus", root=str(machine))
    ranges.apply()
    (machine / "proc/sys/net/backlog").write_text("1-3\n")
    assert ranges.undo({"/proc/sys/net/backlog": "0"}) is None
    assert (machine / "proc/sys/net/backlog").read_text() == "0"


def test_what_somebody_else_changed_is_left(machine: Path) -> None:
    change = KernelValue(["/proc/sys/net/backlog"], "2000", root=str(machine))
    before = change.read()
    change.apply()
    (machine / "proc/sys/net/backlog").write_text("3000\n")
    assert change.pending(before)
    assert change.undo(before) == (
        "somebody else changed /proc/sys/net/backlog (3000, before tailtap 1000): it is left as "
        "it is"
    )
    assert (machine / "proc/sys/net/backlog").read_text() == "3000\n"


def test_a_file_that_is_not_there(machine: Path) -> None:
    with pytest.raises(MachineError, match="/proc/sys/none: there is no such file"):
        KernelValue(["/proc/sys/none"], "1", root=str(machine)).apply()
    KernelValue(["/proc/sys/none"], "1", optional=True, root=str(machine)).apply()


def test_a_file_that_refuses(machine: Path) -> None:
    (machine / "proc/sys/folder").mkdir()
    with pytest.raises(MachineError, match="folder cannot be 1: Is a directory"):
        KernelValue(["/proc/sys/folder"], "1", root=str(machine)).apply()
    KernelValue(["/proc/sys/folder"], "1", optional=True, root=str(machine)).apply()


def test_a_file_that_says_something_else(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = KernelValue(["/proc/sys/net/backlog"], "2000", root=str(machine))
    monkeypatch.setattr(KernelValue, "_write", lambda *_: None)  # as a kernel that ignores it
    with pytest.raises(MachineError) as caught:
        change.apply()
    assert str(caught.value) == ("/proc/sys/net/backlog should be 2000, but the kernel says 1000")


def test_only_files_of_the_machine_itself_are_claimed(machine: Path) -> None:
    assert steering(machine).claims == [f"file {QUEUES}"]
    assert KernelValue([QUEUES], "1", namespace="tt-0a1b2c-dut").claims == ()
