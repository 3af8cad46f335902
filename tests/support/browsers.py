"""Chromium without a window, in which tests look at pages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = "" if CHROMIUM and DRIVER else "chromium or chromedriver is not installed"
TIP = """
const texts = [];
(function walk(node) {
  for (const child of node.children) {
    if (child.classList.contains("tip")) texts.push([...child.children].map((c) => c.textContent));
    if (child.shadowRoot) walk(child.shadowRoot);
    walk(child);
  }
})(document.body);
return texts;
"""
FRAMES = """
const done = arguments[0];
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60)));
"""


@contextmanager
def started() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    profile = tempfile.mkdtemp(prefix="tt-chromium-")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def open_page(browser: webdriver.Chrome, page: Path, width: int = 1600) -> webdriver.Chrome:
    """The page, drawn, in a light window."""
    window(browser, width, 1000)
    media(browser, "light")
    for log in ("browser", "performance"):
        read_log(browser, log)
    browser.get(page.as_uri())
    trouble = browser.execute_async_script(
        "const done = arguments[0]; tailtap.ready.then(() => done(null), (e) => done(String(e)))"
    )
    assert trouble is None
    settle(browser)
    return browser


def window(browser: webdriver.Chrome, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def media(browser: webdriver.Chrome, scheme: str, kind: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def read_log(browser: Any, kind: str) -> list[dict[str, Any]]:
    """What was logged since the last call; selenium leaves this function without types."""
    rows: list[dict[str, Any]] = browser.get_log(kind)
    return rows


def complaints(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """What the page's console had to say that is more than a note."""
    return [row for row in read_log(browser, "browser") if row["level"] in {"SEVERE", "WARNING"}]


def rest(browser: webdriver.Chrome, x: float, y: float) -> Any:
    """Move the pointer to a place of the window; what its tips say."""
    for dx in (-3, 0):
        point = {"type": "mouseMoved", "x": round(x) + dx, "y": round(y)}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", point)
        settle(browser)
    return browser.execute_script(TIP)


def show(browser: webdriver.Chrome, element: Any) -> None:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    settle(browser)


def dragged(
    browser: webdriver.Chrome, figure: Any, ranges: str, rise: int = 0
) -> tuple[list[float], list[float], list[float]]:
    """The ends of a figure's axis by a script: whole, zoomed by dragging, after a double click."""
    show(browser, figure)
    whole = browser.execute_script(ranges)
    actions = webdriver.ActionChains(browser)
    actions.move_to_element_with_offset(figure, -100, -2 * rise).click_and_hold()
    actions.move_by_offset(80, rise).move_by_offset(60, rise).release().perform()
    settle(browser)
    zoomed = browser.execute_script(ranges)
    webdriver.ActionChains(browser).double_click(figure).perform()
    settle(browser)
    return whole, zoomed, browser.execute_script(ranges)


def settle(browser: webdriver.Chrome) -> None:
    browser.execute_async_script(FRAMES)
