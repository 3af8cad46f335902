"""The hops of a line in a browser: the colours of nodes, and what the pointer reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsers import MISSING, TIP, media, open_page, read_log, settle
from line_runs import STALLED, write_line_run
from selenium import webdriver

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.hops import lines

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
BARS = """
return tailtap.state.plots.flatMap((plot) => plot.renderers)
  .filter((r) => r.tags[0]?.role === "bar")
  .map((r) => [r.glyph.fill_color.value ?? r.glyph.fill_color, r.data_source.get("told")[0]]);
"""
PLACE = """
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
    noise = [row for row in read_log(opened, "browser") if row["level"] in {"SEVERE", "WARNING"}]
    assert noise == []
    [line] = lines(configurations(load_experiment(tmp_path)))
    light = opened.execute_script(BARS)
    assert [colour for colour, _ in light] == [colour.light for colour in line.colours]
    assert [told.partition(":")[0] for _, told in light] == line.nodes
    media(opened, "dark")
    settle(opened)
    dark = opened.execute_script(BARS)
    assert [colour for colour, _ in dark] == [colour.dark for colour in line.colours]
    x, y = opened.execute_script(PLACE)
    for dx in (-1, 0):
        point = {"type": "mouseMoved", "x": round(x) + dx, "y": round(y)}
        opened.execute_cdp_cmd("Input.dispatchMouseEvent", point)
    settle(opened)
    [told, *_] = opened.execute_script(TIP)
    # The node that held the packet up is in the middle of its bar.
    assert told[0].startswith("dut3: 3.9") and told[0].endswith(f"packet {STALLED}")
