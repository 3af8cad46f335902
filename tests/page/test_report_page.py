"""The page in a browser: what is drawn, what the pointer reads, what a click does."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import (
    MISSING,
    complaints,
    dragged,
    media,
    open_page,
    read_log,
    rest,
    settle,
    show,
    window,
)
from experiment_folders import write_experiment
from numpy.typing import NDArray
from PIL import Image
from placed_runs import write_ablation
from published_trees import write_mixed
from runs import STALLED, write_line_run
from selenium import webdriver
from selenium.webdriver.common.by import By

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.runs.text import time_text
from tailtap.show.report import write_report
from tailtap.show.report.hops import lines

# The HDR diagram's place for a point of its data, in pixels of the window.
PLACE = """
const [x, y] = arguments;
const plot = tailtap.state.plots[0];
const view = Bokeh.index.get_by_id(plot.id);
const box = view.canvas_view.el.getBoundingClientRect();
return [box.left + view.frame.x_scale.compute(x), box.top + view.frame.y_scale.compute(y)];
"""
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_experiment(tmp_path_factory.mktemp("experiment"))
    write_report(folder, figures=False)
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two runs of our own and four imported ones."""
    folder = write_mixed(tmp_path_factory.mktemp("mixed"), packets=3_000)
    return write_report(folder, figures=False).page


# All as it was when the page was opened, and the pointer in its corner.
RESET = """
document.querySelector(".legend .all").click();
const bands = document.getElementById("bands");
if (!bands.checked) bands.click();
for (const plot of tailtap.state.plots) plot.reset.emit();
window.scrollTo(0, 0);
"""


@pytest.fixture
def opened(browser: webdriver.Chrome, folder: Path) -> webdriver.Chrome:
    """The page, drawn, in a light and wide window. Drawing it takes longer than most tests do."""
    page = folder / "report" / "index.html"
    if browser.current_url != page.as_uri():
        return open_page(browser, page)
    window(browser, 1600, 1000)
    media(browser, "light")
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 1, "y": 1})
    browser.execute_script(RESET)
    settle(browser)
    return browser


def hdr(browser: webdriver.Chrome) -> Any:
    return browser.find_element(By.CSS_SELECTOR, ".figure[data-kind=hdr]")


def pixels(browser: webdriver.Chrome) -> NDArray[np.int16]:
    """The HDR diagram as it is on the screen."""
    show(browser, hdr(browser))
    return np.asarray(Image.open(io.BytesIO(hdr(browser).screenshot_as_png)).convert("RGB"), "i2")


def coloured(image: NDArray[np.int16], colour: str) -> int:
    """How many pixels are close to a colour such as ``#0072b2``."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(image - wanted).max(axis=2) < 24).sum())


def test_the_page_draws_without_a_word_and_without_the_network(
    browser: webdriver.Chrome, folder: Path
) -> None:
    page = folder / "report" / "index.html"
    assert page.stat().st_size < 2_000_000  # of ten runs, with 5000 worst packets each
    opened = open_page(browser, page)
    assert complaints(opened) == []
    asked = []
    for row in read_log(opened, "performance"):
        message = json.loads(row["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert [url for url in asked if not url.startswith(("file://", "data:", "blob:"))] == []
    assert sum(url.startswith("file://") for url in asked) == 1
    figures = opened.find_elements(By.CSS_SELECTOR, ".figure")
    assert len(figures) == 2 + 4 * 4 + 2  # two configurations lost packets
    assert opened.execute_script("return tailtap.state.plots.length") == len(figures)
    assert not opened.find_element(By.ID, "trouble").is_displayed()


LOSSES = """
const {plots} = tailtap.state;
const plot = plots.find(({toolbar}) => toolbar.tools.some((t) => t.tags[0] === "losses"));
const box = Bokeh.index.get_by_id(plot.id);
box.el.scrollIntoView({block: "center"});
"""
RESTED = """
const {plots} = tailtap.state;
const plot = plots.find(({toolbar}) => toolbar.tools.some((t) => t.tags[0] === "losses"));
const view = Bokeh.index.get_by_id(plot.id);
const box = view.canvas_view.el.getBoundingClientRect();
const source = plot.renderers[0].data_source;
const at = source.get("y").findIndex((packets) => packets === arguments[0]);
return [box.left + view.frame.x_scale.compute(source.get("x")[at]),
  box.top + view.frame.y_scale.compute(source.get("y")[at]), source.get("x")[at]];
"""


def test_resting_on_a_loss_reads_how_many_packets_and_when(opened: webdriver.Chrome) -> None:
    assert len(opened.find_elements(By.CSS_SELECTOR, "[data-kind='losses']")) == 2
    opened.execute_script(LOSSES)
    settle(opened)
    for packets, told in ((10, "10 packets lost in a row"), (1, "1 packet lost")):
        x, y, second = opened.execute_script(RESTED, packets)
        tips = rest(opened, x, y)
        assert [told, "bare-metal · 10 kpkt/s #1", f"at {round(second, 4):g}\u00a0s"] in tips


@pytest.mark.parametrize(("place", "p"), [(9, 0.5), (4, 0.99), (9, 0.999)])
def test_resting_on_a_curve_reads_run_percentile_and_latency(
    opened: webdriver.Chrome, folder: Path, place: int, p: float
) -> None:
    run = load_experiment(folder).finished[place]
    assert run.evaluation
    latencies = np.repeat(*run.evaluation.distribution)
    exact = int(latencies[int(np.ceil(round(p * latencies.size, 6))) - 1])
    # Alone, so that no other curve lies under the pointer.
    opened.execute_script(
        "const s = tailtap.state; s.hidden = new Set(s.runs.keys()); s.hidden.delete(arguments[0]);"
        "const all = document.querySelector('.legend .repeat'); all.click(); all.click();",
        place,
    )
    show(opened, hdr(opened))
    x, y = opened.execute_script(PLACE, 1 / (1 - p), exact)
    tips = rest(opened, x, y)
    assert len(tips) == 1
    percentile, reading = tips[0]
    label, latency = reading.rsplit(": ", 1)
    assert label == opened.execute_script("return tailtap.state.runs[arguments[0]].label", place)
    assert float(percentile.split()[0]) == pytest.approx(100 * p, abs=2 * (1 - p))
    value, unit = latency.split()
    scale = {"ns": 1, "µs": 1_000, "ms": 1_000_000}[unit]
    # The pointer stands on a whole pixel: half a pixel is 1/300 of a decade of 1/(1-p).
    ranks = [int((1 - (1 - p) * 10**d) * latencies.size) for d in (0.02, -0.02)]
    low, high = (int(latencies[rank]) for rank in ranks)
    assert low <= round(float(value) * scale) <= high
    assert latency == time_text(round(float(value) * scale))


def test_one_tooltip_tells_of_all_curves_that_run_together(opened: webdriver.Chrome) -> None:
    show(opened, hdr(opened))
    x, y = opened.execute_script(PLACE, 2, 4_205)  # the median of all six bare-metal runs
    tips = rest(opened, x, y)
    assert {tuple(sorted(line.split(":")[0] for line in tip[1:])) for tip in tips} == {
        tuple(f"bare-metal · {rate} kpkt/s #{i}" for rate in (10, 50) for i in (1, 2, 3))
    }


def test_the_legend_switches_a_run_in_every_figure(opened: webdriver.Chrome) -> None:
    before = pixels(opened)
    button = opened.find_element(By.CSS_SELECTOR, ".legend .repeat[data-run='7']")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    settle(opened)
    assert button.get_attribute("aria-pressed") == "false"
    shown = opened.execute_script(
        "return tailtap.state.plots.flatMap((p) => p.renderers)"
        ".map((r) => [r.tags[0].run, r.tags[0].role, r.visible])"
    )
    assert {run for run, _, visible in shown if not visible} == {7}
    assert all(not visible for run, _, visible in shown if run == 7)
    assert {role for run, role, _ in shown if run == 7} >= {"line", "tail", "dots", "before"}
    assert (before != pixels(opened)).any(axis=2).sum() > 200
    button.click()
    settle(opened)
    assert (before != pixels(opened)).any(axis=2).sum() == 0


def test_a_configuration_is_switched_as_a_whole_and_shown_alone(opened: webdriver.Chrome) -> None:
    colour = opened.execute_script("return tailtap.state.runs[4].light")
    assert coloured(pixels(opened), colour) > 300
    group = opened.find_element(By.CSS_SELECTOR, ".legend .group[data-group='2']")
    group.click()
    settle(opened)
    assert coloured(pixels(opened), colour) < 20
    assert opened.execute_script("return [...tailtap.state.hidden]") == [4, 5, 6]
    webdriver.ActionChains(opened).double_click(group).perform()
    settle(opened)
    hidden = sorted(opened.execute_script("return [...tailtap.state.hidden]"))
    assert hidden == [0, 1, 2, 3, 7, 8, 9]
    everything = opened.find_element(By.CSS_SELECTOR, ".legend .all")
    everything.click()
    assert opened.execute_script("return tailtap.state.hidden.size") == 0
    assert not everything.is_displayed()


def test_the_confidence_bands_can_be_taken_away(opened: webdriver.Chrome) -> None:
    before = pixels(opened)
    opened.find_element(By.ID, "bands").click()
    settle(opened)
    assert (before != pixels(opened)).any(axis=2).sum() > 1_000


def test_figures_follow_dark_mode_and_print_light(opened: webdriver.Chrome) -> None:
    colours = """
    const plot = tailtap.state.plots[0];
    const line = plot.renderers.find((r) => r.tags[0].role === "line" && r.tags[0].run === 4);
    const colour = line.glyph.line_color;
    return [plot.below[0].major_label_text_color, colour.value ?? colour,
            getComputedStyle(document.body).backgroundColor];
    """
    light = opened.execute_script(colours)
    runs = opened.execute_script("return tailtap.state.runs")
    media(opened, "dark")
    settle(opened)
    dark = opened.execute_script(colours)
    assert all(a != b for a, b in zip(light, dark, strict=True))
    assert (light[1], dark[1]) == (runs[4]["light"], runs[4]["dark"])
    image = pixels(opened)
    assert image[2, 2].max() < 60  # nothing white is left behind the axes
    assert coloured(image, runs[4]["dark"]) > 300
    media(opened, "dark", "print")
    opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    settle(opened)
    assert opened.execute_script(colours)[1] == runs[4]["light"]
    assert pixels(opened)[2, 2].min() > 240
    media(opened, "dark")
    opened.execute_script("window.dispatchEvent(new Event('afterprint'))")
    settle(opened)
    assert opened.execute_script(colours) == dark


def test_dragging_zooms_and_a_double_click_goes_back(opened: webdriver.Chrome) -> None:
    ranges = "const r = tailtap.state.plots[0].x_range; return [r.start, r.end]"
    whole, zoomed, after = dragged(opened, hdr(opened), ranges, rise=40)
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    assert after == pytest.approx(whole)


def test_imported_runs_are_drawn_beside_ours_and_can_be_taken_away(
    browser: webdriver.Chrome, mixed: Path
) -> None:
    opened = open_page(browser, mixed)
    assert complaints(opened) == []
    runs = opened.execute_script("return tailtap.state.runs")
    before = pixels(opened)
    assert coloured(before, runs[3]["light"]) > 100  # over our own, whose numbers it has
    assert all(coloured(before, runs[place]["light"]) < 20 for place in (4, 5))
    opened.find_element(By.CSS_SELECTOR, ".legend .origin").click()
    settle(opened)
    assert sorted(opened.execute_script("return [...tailtap.state.hidden]")) == [2, 3, 4, 5]
    alone = pixels(opened)
    assert coloured(alone, runs[3]["light"]) < 20 and coloured(alone, runs[1]["light"]) > 300
    panels = opened.find_elements(By.CSS_SELECTOR, ".panel.imported")
    assert len(panels) == 16 and not any(panel.is_displayed() for panel in panels)
    opened.find_element(By.CSS_SELECTOR, ".legend .all").click()
    settle(opened)
    assert all(panel.is_displayed() for panel in panels)
    assert (before != pixels(opened)).any(axis=2).sum() == 0


@pytest.mark.parametrize("width", [420, 1600])
def test_long_names_of_imported_runs_stay_in_their_places(
    browser: webdriver.Chrome, mixed: Path, width: int
) -> None:
    opened = open_page(browser, mixed)
    opened.execute_script(
        "const names = '.name, .panel h3 span, .legend .group span';"
        "for (const name of document.querySelectorAll(names))"
        "name.textContent = 'containerized-low-latency/container/vanilla/non-optimized · 10 kpkt/s'"
    )
    window(opened, width, 900)
    settle(opened)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    overlapping = """
    return [...document.querySelectorAll("th.run")].filter((head) => {
      const name = head.querySelector(".name").getBoundingClientRect();
      const cells = [...head.parentElement.cells].filter((one) => one.checkVisibility());
      const next = cells[1].getBoundingClientRect();
      return name.right > next.left + 1 && name.bottom > next.top + 1;
    }).length
    """
    assert opened.execute_script(overlapping) == 0
    legend = opened.find_element(By.CSS_SELECTOR, ".legend")
    assert legend.rect["height"] <= 0.3 * 900 + 2
    inside = "return arguments[0].scrollWidth <= arguments[0].clientWidth"
    assert opened.execute_script(inside, legend)


def test_the_audit_shows_what_was_left_out(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened = open_page(browser, write_report(write_ablation(tmp_path), figures=False).page)
    heads = opened.find_elements(By.CSS_SELECTOR, "table.matrix .upright span")
    boxes = [head.rect for head in heads]
    assert all(box["height"] > box["width"] for box in boxes)
    assert all(one["x"] + one["width"] <= next_one["x"] + 1 for one, next_one in pairwise(boxes))
    [sections] = [
        opened.find_elements(
            By.CSS_SELECTOR, "section[aria-labelledby=audit] details:not(.caption)"
        )
    ]
    assert [one.get_attribute("open") is not None for one in sections] == [True, True, False, False]


BARS = """
return tailtap.state.plots.flatMap((plot) => plot.renderers)
  .filter((r) => r.tags[0]?.role === "bar")
  .map((r) => [r.glyph.fill_color.value ?? r.glyph.fill_color, r.data_source.get("told")[0]]);
"""
BAR = """
const plot = tailtap.state.plots.find((one) => one.renderers[0].tags[0]?.role === "bar");
const view = Bokeh.index.get_by_id(plot.id);
view.el.scrollIntoView({ block: "center" });
const box = view.canvas_view.el.getBoundingClientRect();
const top = plot.renderers.at(-1).data_source.get("top")[0];
return [box.left + view.frame.x_scale.compute(1), box.top + view.frame.y_scale.compute(top / 2)];
"""


def test_bars_have_the_colours_of_their_nodes_and_tell_of_them(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    write_line_run(tmp_path / "runs")
    opened = open_page(browser, write_report(tmp_path, figures=False).page)
    assert complaints(opened) == []
    [line] = lines(configurations(load_experiment(tmp_path)))
    light = opened.execute_script(BARS)
    assert [colour for colour, _ in light] == [colour.light for colour in line.colours]
    assert [told.partition(":")[0] for _, told in light] == line.nodes
    media(opened, "dark")
    settle(opened)
    dark = opened.execute_script(BARS)
    assert [colour for colour, _ in dark] == [colour.dark for colour in line.colours]
    x, y = opened.execute_script(BAR)
    [told, *_] = rest(opened, x, y)
    # The node that held the packet up is in the middle of its bar.
    assert told[0].startswith("dut3: 3.9") and told[0].endswith(f"packet {STALLED} at 0.077700 s")
