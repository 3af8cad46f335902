"""The page at the width of a phone, a tablet and a desktop: nothing is cut off, all is in reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browsers import MISSING, complaints, open_page, settle, window
from experiment_folders import write_run
from placed_runs import write_ablation
from selenium import webdriver
from selenium.webdriver.common.by import By

from tailtap.show.report import write_report
from tests.golden import folders

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
WIDTHS = (1400, 800, 400)
MEASURE = """
const wide = [], unreachable = [], beneath = [];
const made = "svg, .figure, script, [hidden], .skip";
for (const el of document.body.querySelectorAll("*")) {
  if (el.closest(made) || getComputedStyle(el).display === "inline" || !el.clientWidth) continue;
  const scrolls = ["auto", "scroll"].includes(getComputedStyle(el).overflowX);
  if (el.scrollWidth > el.clientWidth + 1 && !scrolls)
    wide.push(`${el.tagName}.${el.className}: ${el.textContent.trim().slice(0, 60)}`);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.getClientRects().length) continue;
  const box = table.closest(".scroll") ?? table.parentElement;
  box.scrollLeft = box.scrollWidth;
  const edge = box.getBoundingClientRect();
  for (const row of table.rows) {
    const last = [...row.cells].filter((cell) => cell.getClientRects().length).at(-1);
    const place = last?.getBoundingClientRect();
    if (place && (place.right > edge.right + 1 || place.right > innerWidth))
      unreachable.push(row.textContent.trim().slice(0, 60));
  }
  box.scrollLeft = 0;
}
const parts = [...document.querySelectorAll("main section, #contents, header, .legend, footer")]
  .map((part) => [part.id || part.getAttribute("aria-labelledby") || part.className || part.tagName,
    part.getBoundingClientRect()]);
for (const [one, a] of parts)
  for (const [other, b] of parts)
    if (one < other && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
      beneath.push([one, other]);
const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode;
  if (node.parentElement.closest("script, style, code, svg")) continue;
  for (const found of node.data.matchAll(/\\d\\s(%|([num\u00b5]?s|[kM]?pkt.s|packets?|UTC)\\b)/g)) {
    const range = document.createRange();
    range.setStart(node, found.index);
    range.setEnd(node, found.index + 3);
    const lines = new Set([...range.getClientRects()].map((rect) => rect.top));
    if (lines.size > 1) broken.push(found[0]);
  }
}
return { width: document.documentElement.scrollWidth, wide, unreachable, beneath, broken };
"""

LINKED = """
location.hash = arguments[0];
const edge = (found) => document.querySelector(found).getBoundingClientRect();
return [edge(".legend").bottom, edge(`#${arguments[0]}`).top];
"""


def rates(folder: Path) -> None:
    """Eighteen runs at three rates, none of which lost a packet; one is invalid."""
    number = 0
    for platform in ("wire", "bare-metal", "container"):
        for rate in (10_000, 20_000, 50_000):
            for repeat in (1, 2):
                number += 1
                write_run(
                    folder, number,
                    {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
                    repeat=repeat, packets=1_000, rate=rate, loss=0.0,
                    achieved=0.9 * rate if number == 18 else None,
                )  # fmt: skip


FOLDERS: Mapping[str, Callable[[Path], object]] = {
    "rates": rates,
    "ablation": write_ablation,
    **{name: folders.FOLDERS[name] for name in
       ("lossy", "drawn", "traced", "line", "read", "placed", "searched", "mixed", "modelled")},
}  # fmt: skip


Pages = Callable[[str], Path]
"""The page of one of the folders. It is made when somebody asks for it."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    home = tmp_path_factory.mktemp("layout")

    @cache
    def page(name: str) -> Path:
        FOLDERS[name](home / name)
        made = home / name / "experiment"  # where others stand beside it
        return write_report(made if made.is_dir() else home / name, figures=False).page

    return page


@pytest.mark.parametrize("name", FOLDERS)
def test_the_contents_lead_to_every_section_and_nothing_is_cut_off(
    browser: webdriver.Chrome, pages: Pages, name: str
) -> None:
    open_page(browser, pages(name), WIDTHS[0])
    assert complaints(browser) == []  # such as that a model has no such attribute
    links = browser.find_elements(By.CSS_SELECTOR, "#contents a")
    told = [link.get_attribute("hash") for link in links if link.text]
    heads = browser.find_elements(By.CSS_SELECTOR, "section > h2[id], section > .title > h2[id]")
    assert told == [f"#{head.get_attribute('id')}" for head in heads]
    asked = browser.find_elements(By.CSS_SELECTOR, "section.asked")
    assert len({link.rect["y"] for link in links}) == 1 or asked, "the contents are one line"
    assert len(told) >= 8
    sections = "return document.querySelectorAll('section[aria-labelledby]').length"
    assert browser.execute_script(sections) == len(told)
    browser.execute_script(
        "for (const one of document.querySelectorAll('details')) one.open = true"
    )
    for width in WIDTHS:
        window(browser, width, 900)
        settle(browser)
        found: dict[str, Any] = browser.execute_script(MEASURE)
        assert found.pop("width") <= width
        assert (width, found) == (width, {kind: [] for kind in found})


def test_numbers_of_eighteen_runs_are_seen_on_a_desktop_and_on_demand_on_a_phone(
    browser: webdriver.Chrome, pages: Pages
) -> None:
    open_page(browser, pages("rates"), 1400)
    hidden = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')]"
        ".filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"
    )
    assert hidden == []
    heads = [
        head.text
        for head in browser.find_elements(By.CSS_SELECTOR, "[aria-labelledby=summary] thead th")
    ]
    # The legend takes rows at the top of the window, and links lead below it.
    for name in ("worst", "gaps"):
        above, head = browser.execute_script(LINKED, name)
        assert above > 80 and head > above
    [found] = browser.find_elements(By.CSS_SELECTOR, "[aria-labelledby=loss]")
    said = "No packet was lost in any of the 17 runs, at 10 kpkt/s to 50 kpkt/s; 1 invalid run"
    assert said in found.text.replace("\u00a0", " ")
    assert not found.find_elements(By.CSS_SELECTOR, ".figure, table")
    window(browser, 400, 900)
    settle(browser)
    cells = (
        "return [...document.querySelectorAll('[aria-labelledby=summary] td')]"
        ".filter((cell) => cell.checkVisibility()).map((cell) => {"
        "const box = cell.getBoundingClientRect();"
        "return [cell.dataset.head, cell.textContent, box.left, box.right] })"
    )
    few = [head for head, *_ in browser.execute_script(cells)]
    assert few == ["p50", "p99", "max"] * (len(few) // 3)
    browser.find_element(By.CSS_SELECTOR, "[aria-labelledby=summary] .spared input").click()
    boxes = browser.execute_script(cells)
    assert heads[1:] == [head for head, *_ in boxes[: len(heads) - 1]]
    assert len(boxes) % (len(heads) - 1) == 0
    assert all(0 <= left < right <= 400 and text for _, text, left, right in boxes)
