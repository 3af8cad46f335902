"""Pages of causes, of what runs, and of a history, in a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from browsers import (
    MISSING,
    complaints,
    media,
    open_page,
    read_log,
    rest,
    settle,
    show,
    window,
)
from experiment_folders import write_run
from live_numbers import numbers
from selenium import webdriver
from selenium.webdriver.common.by import By
from traced import write_two_causes

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.live.numbers import Board
from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.live import LiveCause, LiveIncidents
from tailtap.show.live.server import LOOPBACK, Address, Server
from tailtap.show.publish import publish
from tailtap.show.report import write_report
from tailtap.show.report.causes import COLOURS

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
    seen(browser, "its process has gone")
    told = [row["message"] for row in read_log(browser, "browser")]
    assert [row for row in told if "numbers.json" not in row and "ERR_CONNECTION" not in row] == []


MARKS = """
return tailtap.state.plots.flatMap((plot) => plot.renderers).filter((r) => r.tags[0]?.cause)
  .map((r) => [r.tags[0].cause, r.glyph.type, r.glyph.fill_color.value ?? r.glyph.fill_color,
               r.data_source.get(r.data_source.columns()[0]).length]);
"""
SHOWN = """
const one = tailtap.timelines[0];
const rows = one.slices.get("told").map((told, i) =>
  [...told, one.slices.get("left")[i], one.slices.get("right")[i], one.slices.get("colour")[i]]);
return { rows, stay: [one.stay.left, one.stay.right],
         range: [one.plot.x_range.start, one.plot.x_range.end], labels: [...one.labels.get("text")],
         words: one.panel.querySelector(".told").textContent };
"""
PLACE = """
const one = tailtap.timelines[0];
const view = Bokeh.index.get_by_id(one.plot.id);
const box = view.canvas_view.el.getBoundingClientRect();
const i = one.slices.get("name").lastIndexOf("hog");
const middle = (a, b) => (one.slices.get(a)[i] + one.slices.get(b)[i]) / 2;
return [box.left + view.frame.x_scale.compute(middle("left", "right")),
        box.top + view.frame.y_scale.compute(middle("top", "bottom"))];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Causes]:
    run = write_two_causes(tmp_path_factory.mktemp("told"))
    explain_runs([run], late="150 us")
    return write_report(run.parent.parent, figures=False).page, causes_of(finished_runs(run)[0])


@pytest.fixture
def opened(browser: webdriver.Chrome, page: tuple[Path, Causes]) -> webdriver.Chrome:
    return open_page(browser, page[0])


def test_marks_have_the_colours_of_their_causes(opened: webdriver.Chrome) -> None:
    assert complaints(opened) == []
    light = opened.execute_script(MARKS)
    assert {cause for cause, *_ in light} >= {"task", "kernel-thread"}
    assert {kind for _, kind, *_ in light} == {"Scatter", "Quad"}
    assert all(colour == COLOURS[cause].light and size for cause, _, colour, size in light)
    media(opened, "dark")
    settle(opened)
    dark = opened.execute_script(MARKS)
    assert all(colour == COLOURS[cause].dark for cause, _, colour, _ in dark)


def test_a_chosen_packet_shows_its_stay_and_what_held_it_up(
    opened: webdriver.Chrome, page: tuple[Path, Causes]
) -> None:
    worst = page[1].record.worst
    panel = opened.find_element(By.CSS_SELECTOR, ".panel.timeline")
    options = panel.find_elements(By.CSS_SELECTOR, "option")
    assert len(options) == 30
    for at in (0, 17):
        options[at].click()
        settle(opened)
        shown = opened.execute_script(SHOWN)
        assert shown["words"].replace("\u00a0", " ") == worst[at].words.replace(" us", " µs")
        assert shown["stay"] == [0, worst[at].latency]
        assert shown["range"][0] < 0 and shown["range"][1] > worst[at].latency
        hogs = [row for row in shown["rows"] if row[0] == "hog"]
        assert any(left < worst[at].latency / 2 < right for *_, left, right, _ in hogs)
        assert {row[-1] for row in hogs} == {COLOURS["task"].light}
        assert "hog" in shown["labels"] and "this packet" in shown["labels"]
        own = [row for row in shown["rows"] if row[4:6] == [0, worst[at].latency]]
        assert own and own[0][0] == "late packet: task: hog"
    panel.find_elements(By.CSS_SELECTOR, ".step")[1].click()
    assert opened.execute_script("return tailtap.timelines[0].at") == 18


def test_resting_on_a_slice_tells_what_it_is(opened: webdriver.Chrome) -> None:
    show(opened, opened.find_element(By.CSS_SELECTOR, ".figure[data-kind=timeline]"))
    x, y = opened.execute_script(PLACE)
    (tip,) = rest(opened, x, y)
    hogs = [row for row in opened.execute_script(SHOWN)["rows"] if row[0] == "hog"]
    assert tip[:2] == ["hog", "task"]
    assert tip[2] in {length for _, _, length, *_ in hogs}
    assert tip[3].startswith("begins ") and "the packet came" in tip[3]
