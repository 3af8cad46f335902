"""A published site in a browser: from the disk, without a network, each page of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browsers import MISSING, read_log, window
from experiment_folders import write_run
from selenium import webdriver

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
