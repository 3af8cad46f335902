"""A device that was there before is observed: its packets are stamped and its cores are traced,
and nothing is changed.

`targets.py` finds where an interface is, and `interfaces.py` what it is. `look.py` looks at packets
for a moment: in which order they pass both interfaces, by what they are known again, and, with
`serving.py`, who serves them. `prepared.py` is all that together. `at_work.py` has the taps and the
tracer, and what they cost; `record.py` makes a run of it. `observing.py` and `recorder.py` do all
of it in order.
"""

from __future__ import annotations

from tailtap.measure.observe.at_work import AtWork, Stopped
from tailtap.measure.observe.look import Asked
from tailtap.measure.observe.observing import observe
from tailtap.measure.observe.prepared import Prepared, prepare
from tailtap.measure.observe.record import begun, ended, evaluated, stopped_into
from tailtap.measure.observe.targets import Target, parse_target

__all__ = [
    "Asked",
    "AtWork",
    "Prepared",
    "Stopped",
    "Target",
    "begun",
    "ended",
    "evaluated",
    "observe",
    "parse_target",
    "prepare",
    "stopped_into",
]
