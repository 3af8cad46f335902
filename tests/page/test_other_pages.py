"""A published site and a measurement that runs, in a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from browsers import MISSING, read_log, window
from experiment_folders import write_run
from live_numbers import numbers
from selenium import webdriver

from tailtap.analysis.live.numbers import Board
from tailtap.records.live import LiveCause, LiveIncidents
from tailtap.show.live.server import LOOPBACK, Address, Server
from tailtap.show.publish import publish

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
BROKEN = """
const done = arguments[0], images = [...document.images];
images.forEach((image) => { image.loading = "eager"; });
Promise.allSettled(images.map((image) => image.decode())).then((found) =>
  done(images.filter((_, place) => found[place].status !== "fulfilled").map((one) => one.src)));
"""
CUT_OFF = """
return [...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent.trim().slice(0, 40));
"""
LINKS = "return [...document.links].map((link) => link.href)"


def test_a_site_asks_nobody_for_anything(browser: webdriver.Chrome, tmp_path: Path) -> None:
    write_run(tmp_path / "measured", 1, {"traffic.rate": "10 kpkt/s"}, packets=2_000)
    site = tmp_path / "site"
    publish(tmp_path / "measured", site)
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "report.html", "hdr.html", "ro-crate-preview.html"} <= {
        page.name for page in pages
    }
    for log in ("browser", "performance"):
        read_log(browser, log)
    linked = set()
    for page in pages:
        browser.get(page.as_uri())
        assert browser.execute_async_script(BROKEN) == []
        window(browser, 390, 800)
        assert browser.execute_script(CUT_OFF) == []
        linked |= {link.partition("#")[0] for link in browser.execute_script(LINKS)}
    assert [row for row in read_log(browser, "browser") if row["level"] != "INFO"] == []
    events = [json.loads(row["message"])["message"] for row in read_log(browser, "performance")]
    asked = {
        event["params"]["request"]["url"].partition(":")[0]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "data", "blob"} and "file" in asked
    missing = [
        link
        for link in linked
        if link.startswith("file:") and not Path(link.removeprefix("file://")).exists()
    ]
    assert missing == []
    assert {page.as_uri() for page in pages} <= linked | {(site / "index.html").as_uri()}


def seen(browser: webdriver.Chrome, text: str) -> str:
    """The page's text once that is in it."""
    deadline = time.monotonic() + 30
    while text not in (shown := str(browser.execute_script("return document.body.innerText"))):
        assert time.monotonic() < deadline, f"{text!r} is not in {shown}"
        time.sleep(0.2)
    return shown


def test_a_page_follows_the_numbers_until_nobody_answers(browser: webdriver.Chrome) -> None:
    read_log(browser, "browser")  # of the pages before it
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
    told = [row["message"] for row in read_log(browser, "browser")]
    assert [row for row in told if "numbers.json" not in row and "ERR_CONNECTION" not in row] == []
