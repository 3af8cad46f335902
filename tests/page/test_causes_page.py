"""Causes in a browser: colours, what the pointer reads, and the timeline of a chosen packet."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsers import MISSING, complaints, media, open_page, rest, settle, show
from selenium import webdriver
from selenium.webdriver.common.by import By
from two_causes import write_two_causes

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.show.report import write_report
from tailtap.show.report.causes import COLOURS

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
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
    report = write_report(run.parent.parent, figures=False)
    return report.page, causes_of(finished_runs(run)[0])


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
        assert shown["words"] == worst[at].words.replace(" us", " µs")
        assert shown["stay"] == [0, worst[at].latency]
        assert shown["range"][0] < 0 and shown["range"][1] > worst[at].latency
        hogs = [row for row in shown["rows"] if row[0] == "hog"]
        assert any(left < worst[at].latency / 2 < right for *_, left, right, _ in hogs)
        assert {row[-1] for row in hogs} == {COLOURS["task"].light}
        assert "hog" in shown["labels"] and "this packet" in shown["labels"]
        own = [row for row in shown["rows"] if row[4:6] == [0, worst[at].latency]]
        assert own and own[0][0] == "late packet: task"
    panel.find_elements(By.CSS_SELECTOR, ".step")[1].click()
    assert opened.execute_script("return tailtap.timelines[0].at") == 18


def test_resting_on_a_slice_tells_what_it_is(opened: webdriver.Chrome) -> None:
    figure = opened.find_element(By.CSS_SELECTOR, ".figure[data-kind=timeline]")
    show(opened, figure)
    x, y = opened.execute_script(PLACE)
    (tip,) = rest(opened, x, y)
    hogs = [row for row in opened.execute_script(SHOWN)["rows"] if row[0] == "hog"]
    assert tip[:2] == ["hog", "task"]
    assert tip[2] in {length for _, _, length, *_ in hogs}
    assert tip[3].startswith("begins ") and "the packet came" in tip[3]


def test_dragging_zooms_into_a_timeline_and_a_double_click_goes_back(
    opened: webdriver.Chrome,
) -> None:
    figure = opened.find_element(By.CSS_SELECTOR, ".figure[data-kind=timeline]")
    show(opened, figure)
    before = opened.execute_script(SHOWN)["range"]
    actions = webdriver.ActionChains(opened)
    actions.move_to_element_with_offset(figure, -100, 0).click_and_hold()
    actions.move_by_offset(80, 0).move_by_offset(60, 0).release().perform()
    settle(opened)
    zoomed = opened.execute_script(SHOWN)["range"]
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    webdriver.ActionChains(opened).double_click(figure).perform()
    settle(opened)
    assert opened.execute_script(SHOWN)["range"] == pytest.approx(before)
