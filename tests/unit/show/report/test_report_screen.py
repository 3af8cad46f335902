"""The page's figures: what Bokeh's script is given is what Bokeh's own library reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bokeh.document import Document
from experiment_folders import write_experiment
from line_runs import write_line_run
from told import write_told

from tailtap.show.report import gather
from tailtap.show.report.causes.figures import timeline_plot
from tailtap.show.report.screen import Screen


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Repeats of four configurations with losses, a line of nodes, and a traced run."""
    ten = write_experiment(tmp_path_factory.mktemp("experiment"), packets=2_000)
    line = tmp_path_factory.mktemp("line")
    write_line_run(line / "runs")
    return [ten, line, write_told(tmp_path_factory.mktemp("told")).parent.parent]


def test_bokeh_reads_all_models_and_what_is_drawn(
    folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    screen, names = Screen(), set()
    for folder in folders:
        material = gather(folder)
        for figure in material.figures:
            screen.add(figure)
            names.add(figure.name)
        for story in material.stories:
            plot = timeline_plot(screen, ["late packets", "CPU 1 task"], story.member)
            screen.put("timeline", story.member.label, story.place, plot)
    assert names == {"hdr", "worst", "losses", "gaps", "rates", "latency", "loss", "causes",
                     "shares", "hops", "hop-packets"}  # fmt: skip
    config = {"type": "object", "name": "DocumentConfig", "id": "config"}
    document: Any = Document.from_json({**screen.document, "config": config})  # type: ignore[arg-type]
    assert not caplog.records  # such as that a model has no such attribute
    assert len(document.roots) == len([one for one in screen.shown if one.root])
    document.validate()
    curve = gather(folders[0]).figures[0].panels[0].marks[1]
    [line, *_] = [
        renderer for renderer in document.roots[0].renderers if renderer.tags[0]["role"] == "hit"
    ]
    assert np.array_equal(line.data_source.data["x"], curve.x)
    assert np.array_equal(line.data_source.data["y"], curve.y)
    shared = [root.x_range for root, one in zip(document.roots, screen.shown, strict=False)
              if one.kind == "worst"][:4]  # fmt: skip
    assert len({id(one) for one in shared}) < 4
