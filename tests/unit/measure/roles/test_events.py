"""Events at work."""

from __future__ import annotations

from tailtap.experiment.sections import Due, Event
from tailtap.measure.roles.dut import Happenings


def test_what_is_not_begun_when_packets_end_is_known() -> None:
    event = Event.model_validate({"at": "1 s", "run": "true"})
    events = [Due(10**15, event), Due(2 * 10**15, event)]
    happenings = Happenings(events, lambda where: (_ for _ in ()).throw(AssertionError(where)), 0)
    assert happenings.stop() == []
    assert happenings.missed == events
