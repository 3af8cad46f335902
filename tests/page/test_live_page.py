"""The page of a measurement that runs, in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from browsers import MISSING, started
from live_numbers import numbers
from selenium import webdriver

from tailtap.analysis.live.numbers import Board
from tailtap.records.live import LiveCause, LiveIncidents
from tailtap.show.live.server import LOOPBACK, Address, Server

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with started() as driver:
        yield driver


def seen(browser: webdriver.Chrome, text: str) -> str:
    """The page's text once that is in it."""
    deadline = time.monotonic() + 30
    while text not in (shown := str(browser.execute_script("return document.body.innerText"))):
        assert time.monotonic() < deadline, f"{text!r} is not in {shown}"
        time.sleep(0.2)
    return shown


def test_a_page_follows_the_numbers_until_nobody_answers(browser: webdriver.Chrome) -> None:
    board = Board()
    with Server(Address(LOOPBACK, 0), board, page=True) as server:
        browser.get(f"http://{server.address}/")
        seen(browser, "waiting for a run")
        board.hang(numbers())
        shown = seen(browser, "001-tc-mirred (2 of 6)")
        assert "8 s left" in shown and "120,000" in shown and "p99.99" in shown
        assert "<b>marks</b>" in shown  # texts are texts
        assert "Incidents" not in shown
        later = numbers(lost=12, flows=("forward", "reverse"))
        later.incidents = LiveIncidents(kept=3, dropped=1, late=812, last="003-x")
        later.causes = [LiveCause(cause="task", detail="hog", packets=7, delay_ns=5_000_000)]
        board.hang(later)
        shown = seen(browser, "3 kept, 1 not kept, 812 late packets; the last: 003-x")
        assert "task (hog)" in shown and "reverse" in shown
        for width in (400, 1200):
            browser.set_window_size(width, 900)
            wide = "return document.documentElement.scrollWidth - innerWidth"
            assert browser.execute_script(wide) <= 0
    seen(browser, "nobody answers any more")
    told = [row["message"] for row in browser.get_log("browser")]  # type: ignore[no-untyped-call]
    assert [row for row in told if "numbers.json" not in row and "ERR_CONNECTION" not in row] == []
