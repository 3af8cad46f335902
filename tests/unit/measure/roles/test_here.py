"""This machine as a station, as far as it needs no root."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tailtap.base.errors import InputError
from tailtap.measure.roles.here import Here, HereSession
from tailtap.remote.session import Setup, Station
from tailtap.remote.stream import StreamStation

FAR = StreamStation([sys.executable, "-P", "-m", "tailtap.measure.roles.here"], "the far end")


@pytest.mark.parametrize("station", [Here(), FAR], ids=["here", "behind a stream"])
def test_an_experiment_with_a_kind_that_is_not_installed_is_refused(station: Station) -> None:
    dut = {"forwarder": "of-another-package"}
    with pytest.raises(InputError, match=r"dut\.forwarder: .*of-another-package") as caught:
        station.open(Setup(experiment={"name": "a", "dut": dut, "traffic": {}}))
    assert "\n" not in str(caught.value)


def test_a_question_may_come_with_anything() -> None:
    """No word of it is taken for a word of the session's own."""
    heard: list[object] = []

    def hear(content: dict[str, Any]) -> dict[str, Any]:
        heard.append(content)
        return content

    role: Any = SimpleNamespace(requests=lambda: {"probe": hear}, sources=lambda: [])
    said = {"seconds": 3, "request": "why", "content": {}}
    assert HereSession(role, "role").ask("probe", said) == said == heard[0]
