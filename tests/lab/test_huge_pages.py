"""Huge pages of the real kernel."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.changes.huge_pages import Pages, Reservation

PAGES = 512
"""Freeing so many takes the kernel some milliseconds."""
ROUNDS = 30
WITHIN_SECONDS = 0.004
"""A page that is given back so late meets the kernel at work half of the time."""
PATIENCE_SECONDS = 5.0
HOLDER = """
import mmap, sys, time
MAP_HUGETLB = 0x40000
size = 2 * int(sys.argv[1])
pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
pages[0] = pages[size - 1] = 1
print("held", flush=True)
time.sleep(60)
"""
"""Has two huge pages, of so many bytes each."""


@pytest.mark.apart
def test_pages_that_a_program_gives_back_meanwhile_do_not_stay() -> None:
    pages = Pages.smallest()
    if pages is None:
        pytest.skip("this kernel has no huge pages (CONFIG_HUGETLBFS)")
    before = _all(pages)
    moments = random.Random(1)
    for _ in range(ROUNDS):
        size = (pages.free + PAGES) * pages.size_kib << 10
        reservation = Reservation(pages.size_kib, size)
        old = reservation.read()
        try:
            added = reservation.apply()
        except MachineError:  # this machine has no memory for so many, and keeps what it found
            pages.resize(before)
            raise
        assert added == PAGES
        command = [sys.executable, "-S", "-c", HOLDER, str(pages.size_kib << 10)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            end = threading.Timer(moments.uniform(0, WITHIN_SECONDS), holder.kill)
            end.start()
            reservation.undo(old, added)
            end.join()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _all(pages) != before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert _all(pages) == before


def _all(pages: Pages) -> int:
    folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{pages.size_kib}kB")
    return int((folder / "nr_hugepages").read_text())
