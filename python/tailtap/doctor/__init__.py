"""`tailtap doctor`: what this machine can do, and how to get what it cannot.

Whatever can be tried is tried: the kernel's answers come from a lab that is built, used and
removed, not from a list of its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailtap.doctor.check import Check
from tailtap.doctor.containers import check_containers
from tailtap.doctor.forwarders import check_forwarders
from tailtap.doctor.kernel import check_kernel
from tailtap.doctor.machine import check_machine
from tailtap.doctor.machines import check_machines
from tailtap.doctor.nics import check_nics
from tailtap.doctor.programs import check_programs

__all__ = ["SCHEMA", "Check", "as_json", "can_run", "examine"]

SCHEMA = "tailtap.doctor/1"


def examine() -> list[Check]:
    """Every check, in the order in which a person reads them. Leaves nothing behind."""
    return [
        *check_kernel(),
        *check_containers(),
        *check_forwarders(),
        *check_machines(),
        *check_machine(),
        *check_nics(),
        *check_programs(),
    ]


def can_run(checks: Sequence[Check]) -> bool:
    """Whether ``tailtap run`` can work here."""
    return all(check.state == "ok" for check in checks if check.required)


def as_json(checks: Sequence[Check]) -> dict[str, Any]:
    """What ``tailtap doctor --json`` prints."""
    return {
        "schema": SCHEMA,
        "can_run": can_run(checks),
        "checks": [check.as_json() for check in checks],
    }
