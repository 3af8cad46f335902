"""The browser in which all pages are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsers import started
from selenium import webdriver


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    """One a process: it takes longer to start than most pages to look at."""
    with started() as driver:
        yield driver
