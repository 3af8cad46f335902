"""The watch over links: what it says when one goes, and when those who tell are gone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from observing import NoLinks

from tailtap.base.errors import MachineError
from tailtap.lab.instruments import Scope
from tailtap.lab.instruments.observing import Watching, link_watch
from tailtap.remote.local import LocalHost
from tailtap.remote.process import Process


@pytest.fixture
def told() -> Iterator[Process]:
    """A process that tells of other things, then of a link, and ends."""
    script = "echo added tt-in; read line < /dev/null; echo deleted tt-in; sleep 0.2"
    process = LocalHost().start(["sh", "-c", script])
    yield process
    process.close()


def _observe(links: NoLinks) -> Watching:
    return link_watch(Scope((1,), (0,), links))


def _trouble(observation: Watching) -> str | None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and observation.sources():
        if trouble := observation.trouble():
            return trouble
        time.sleep(0.01)
    return None


def test_a_deleted_link_is_named(told: Process) -> None:
    observation = _observe(NoLinks([told]))
    assert _trouble(observation) == "interface tt-in vanished during the run"


def test_those_who_tell_may_end_as_the_links_are_looked_at_in_the_end() -> None:
    process = LocalHost().start(["true"])
    links = NoLinks([process])
    observation = _observe(links)
    assert _trouble(observation) is None
    assert observation.sources() == []
    links.broken.append("interface tt-out of namespace tt-dut is down")
    with pytest.raises(MachineError, match="tt-out of namespace tt-dut is down during the run"):
        observation.stop()


def test_standing_links_are_no_news() -> None:
    reading = _observe(NoLinks()).stop()
    assert not reading.found and not reading.warnings and not reading.files
