"""DAMON: threads called kdamond.N, which look through memory for what is used and move the rest."""

from __future__ import annotations

from functools import partial

from tailtap.host.knobs.knob import Files, Knob, fixed

SOURCE = "Documentation/admin-guide/mm/damon/usage.rst"
MODULES = "/sys/module/damon_*/parameters/enabled"
ADMIN = "/sys/kernel/mm/damon/admin/kdamonds/*/state"

row = partial(Knob, group="memory")
ROWS = (
    row(
        "damon",
        Files(ADMIN, "switch"),
        fixed("off"),
        "A kernel thread for each context samples memory at intervals of milliseconds, and may "
        "reclaim or move pages.",
        SOURCE,
        removes=("kernel-thread", "page-fault"),
        since="5.18",
        absent="nobody has set up a kdamond by DAMON's files",
    ),
    row(
        "damon-modules",
        Files(MODULES, "switch"),
        fixed("N"),
        "Modules that reclaim or sort pages by how they are used have such a thread of their own.",
        "Documentation/admin-guide/mm/damon/reclaim.rst",
        removes=("kernel-thread", "page-fault"),
        since="5.16",
        absent="this kernel has no module of DAMON",
    ),
)
