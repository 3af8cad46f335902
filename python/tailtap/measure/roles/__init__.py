"""What a station can be in a measurement: one file for each role, one row in `ROLES`.

A role does on its station what it is asked to, and knows nothing of the other stations. All that
it needs comes in its plan, which is JSON, so that it works the same in the measuring process
(`here.py`) and at the other end of a stream (`remote/serving.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.measure.roles.dut import DeviceUnderTest
from tailtap.measure.roles.generator import LoadGenerator
from tailtap.measure.roles.role import Begin, Role
from tailtap.measure.roles.timestamper import Timestamper

__all__ = ["ROLES", "Begin", "Role"]

ROLES: Mapping[str, Begin] = {
    "dut": DeviceUnderTest,
    "generator": LoadGenerator,
    "timestamper": Timestamper,
}
"""How each role begins, by its name."""
