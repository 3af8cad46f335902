"""`tailtap doctor`: what this machine can do, and how to get what it cannot.

Whatever can be tried is tried: the kernel's answers come from a lab that is built, used and
removed, not from a list of its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailtap.base.errors import Check, TailtapError
from tailtap.base.registry import OURS, Kind, Registry
from tailtap.bmc import MACHINES
from tailtap.doctor.machine import check_kernel, check_machine, check_nics
from tailtap.doctor.programs import check_folder, check_programs
from tailtap.host.knobs import TABLE
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.instruments.taps.kinds import TAPS
from tailtap.lab.instruments.tracer import diagnose_tracer
from tailtap.lab.neighbours import NEIGHBOURS
from tailtap.lab.platforms import PLATFORMS
from tailtap.measure.testbed.boot import WAYS
from tailtap.measure.testbed.power import POWERS
from tailtap.records.printed import CheckRow, DoctorRecord
from tailtap.records.record import made

__all__ = ["Check", "can_run", "examine", "record"]


REGISTRIES: Mapping[str, Registry[Any]] = {
    "platforms": PLATFORMS,
    "forwarders": FORWARDERS,
    "generators": GENERATORS,
    "neighbours": NEIGHBOURS,
    "taps": TAPS,
    "power": POWERS,
    "boot ways": WAYS,
    "machines with a controller": MACHINES,
}
"""The kinds that say themselves what they need, by the area in which doctor shows them."""


def examine(more: Mapping[str, Registry[Any]], clocks_ns: int | None = None) -> list[Check]:
    """Every check, in the order in which a person reads them. Leaves nothing behind.

    `more` are registries that only the command line knows. The clocks of cards are read for
    `clocks_ns`, where that is asked for.
    """
    return [
        *check_kernel(),
        *(
            check
            for area, kinds in {**REGISTRIES, **more}.items()
            for check in check_kinds(area, kinds)
        ),
        *check_knobs(),
        *diagnose_tracer(),
        *check_machine(),
        *check_nics(),
        *check_clocks(clocks_ns),
        *check_programs(),
        *check_folder(),
    ]


def check_kinds(area: str, kinds: Registry[Any]) -> Iterator[Check]:
    """What the rows of a registry say. A package that does not work is a check, too."""
    for name in kinds:
        try:
            row: Kind = kinds[name]
        except TailtapError as error:
            remedy = "repair or uninstall the package"
            yield Check(area, name, "missing", str(error), remedy)
        else:
            yield from row.diagnose()


def check_knobs() -> Iterator[Check]:
    """The knobs of other packages; no run needs any."""
    for name in TABLE:
        if TABLE.package(name) == OURS:
            continue
        try:
            yield Check("knobs", name, "ok", TABLE[name].why)
        except TailtapError as error:
            yield Check("knobs", name, "missing", str(error), "repair or uninstall the package")


def check_clocks(clocks_ns: int | None) -> Iterator[Check]:
    """Those of the clocks of cards, where they are to be read for a time."""
    if clocks_ns is not None:
        from tailtap.doctor.clocks import check_clocks  # hosts of a testbed need no arrays

        yield from check_clocks(clocks_ns)


def can_run(checks: Sequence[Check]) -> bool:
    """Whether ``tailtap run`` can work here."""
    return all(check.state == "ok" for check in checks if check.required)


def record(checks: Sequence[Check]) -> DoctorRecord:
    """What ``tailtap doctor --json`` prints."""
    return DoctorRecord(can_run=can_run(checks), checks=[made(check, CheckRow) for check in checks])
