"""Huge pages: what is reserved is given back, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.huge_pages import Pages, Reservation, needed, reservation
from tailtap.host.changes.journal import Journal, read_all

MIB = 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a machine with 10 pages of 2 MiB, 3 of them free, and pages of 1 GiB."""
    for size, total, free in ((2048, 10, 3), (1_048_576, 0, 0)):
        folder = tmp_path / f"sys/kernel/mm/hugepages/hugepages-{size}kB"
        folder.mkdir(parents=True)
        (folder / "nr_hugepages").write_text(f"{total}\n")
        (folder / "free_hugepages").write_text(f"{free}\n")
        (folder / "resv_hugepages").write_text("0\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n")
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.fixture
def pages(machine: Path) -> Pages:
    found = Pages.smallest(machine)
    assert found is not None
    return found


def test_the_smallest_size_is_taken(machine: Path, pages: Pages) -> None:
    assert (pages.size_kib, pages.total, pages.free) == (2048, 10, 3)
    assert Pages.smallest(machine / "nothing") is None
    assert [needed(size, pages) for size in (1, 2 * MIB, 2 * MIB + 1)] == [1, 1, 2]


def test_only_what_is_missing_is_reserved_and_given_back(machine: Path, pages: Pages) -> None:
    journal = Journal.create(machine / "state")
    with journal.held(reservation(16 * MIB, pages)):
        assert pages.total == 15
        [record] = read_all(machine / "state")
        [entry] = record.entries
        assert (entry.kind, entry.name) == ("huge-pages", "8 of 2048 KiB")
        assert (entry.old, entry.new) == ({"total": 10, "missing": 5}, 15)
        assert entry.applied == 5
        change = Reservation.parse(entry.resource)
        assert change.pending(entry.old)
    assert pages.total == 10
    assert not change.pending(entry.old)


def test_pages_that_another_measurement_gave_back_meanwhile_are_not_kept(
    machine: Path, pages: Pages
) -> None:
    """It has them all when the change is thought of, and none when that is made."""
    folder = machine / "sys/kernel/mm/hugepages/hugepages-2048kB"
    (folder / "free_hugepages").write_text("0\n")
    thought = reservation(4 * MIB, pages)
    pages.resize(0)
    with Journal.create(machine / "state").held(thought):
        assert pages.total == 2
    assert pages.total == 0


def test_free_pages_of_another_measurement_are_not_counted_on(machine: Path, pages: Pages) -> None:
    thought = reservation(6 * MIB, pages)
    pages.resize(7)
    (machine / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").write_text("0\n")
    with Journal.create(machine / "state").held(thought):
        assert pages.total == 10
    assert pages.total == 7


def test_free_pages_are_enough(machine: Path, pages: Pages) -> None:
    journal = Journal.create(machine / "state")
    with journal.held(reservation(6 * MIB, pages)):
        [record] = read_all(machine / "state")
        assert [(entry.old["missing"], entry.new) for entry in record.entries] == [(0, 10)]


def test_pages_of_one_size_are_for_one_measurement_at_a_time(machine: Path, pages: Pages) -> None:
    """Those that are free and promised to one would not be there for the other."""
    with (
        Journal.create(machine / "state").held(reservation(6 * MIB, pages)),
        pytest.raises(MachineError, match="in use by another tailtap, process"),
        Journal.create(machine / "state").held(reservation(2 * MIB, pages)),
    ):
        pass


def test_more_than_the_machine_has_is_not_even_asked_for(machine: Path, pages: Pages) -> None:
    with (
        pytest.raises(MachineError, match=r"600 huge pages of 2048 KiB are needed .* found 3: "),
        Journal.create(machine / "state").held(reservation(1200 * MIB, pages)),
    ):
        pass
    assert pages.total == 10


def test_reservations_of_others_stay(machine: Path, pages: Pages) -> None:
    pages.resize(10 + 5 + 7)  # ours, then somebody else's
    change = Reservation(2048, 16 * MIB, root=str(machine))
    old = {"total": 10, "missing": 5}
    change.undo(old, 5)
    assert pages.total == 17
    pages.resize(12)  # somebody gave back more than was theirs
    change.undo(old)
    assert pages.total == 10
    change.undo(old, 5)
    assert pages.total == 10


def test_pages_of_one_node(machine: Path) -> None:
    folder = machine / "sys/devices/system/node/node1/hugepages/hugepages-2048kB"
    folder.mkdir(parents=True)
    (folder / "nr_hugepages").write_text("4\n")
    (folder / "free_hugepages").write_text("1\n")
    pages = Pages.smallest(machine, node=1)
    assert pages is not None
    with Journal.create(machine / "state").held(reservation(4 * MIB, pages)):
        assert pages.total == 5
        one = {"missing": 1}
        assert Reservation(2048, 4 * MIB, 1, str(machine)).pending({"total": 4, **one})
        assert not Reservation(2048, 4 * MIB, None, str(machine)).pending({"total": 10, **one})
    assert pages.total == 4
    Reservation(2048, 4 * MIB, 1, str(machine)).undo({"total": 3, "missing": 2})
    assert pages.total == 3
