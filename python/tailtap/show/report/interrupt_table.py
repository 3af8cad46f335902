"""Figure 8 of the papers as a table: the increments of interrupt counters under the late packets.

Each row has a strip: what happened over the time of the run, normalised to the row's largest. The
strips lie below each other, so that what moves together is seen, and the p-value beside it says
how often chance does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tailtap.analysis.interrupts.runs import finding_of
from tailtap.analysis.interrupts.windows import Integers
from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.base.errors import InputError
from tailtap.records.interrupts import FILE
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Section
from tailtap.show.sections.interrupts import interrupts_section

STRIP, HIGH = 480, 20
"""The size of a strip, in the units of its own drawing."""


def sampled_of(
    groups: Sequence[Configuration], progress: Callable[[str], None] = lambda _: None
) -> list[Section]:
    """The sampled run of each configuration, the worst valid repeat where several were sampled."""
    found = []
    for group in groups:
        member = group.example([one for one in group.members if _is_sampled(one)])
        if member is None:
            continue
        progress(f"which interrupts rose where packets of {member.run.slug} were late")
        found.append(_sampled(group, member))
    return found


def _is_sampled(member: Member) -> bool:
    folder = member.run.own_folder
    return folder is not None and (folder / FILE).is_file()


def _sampled(group: Configuration, member: Member) -> Section:
    folder, mark = member.run.own_folder, mark_of(group)
    assert folder is not None
    try:
        finding = finding_of(member.run, folder / FILE)
    except InputError as error:
        return Section(member.label, [str(error)], mark=mark)
    return interrupts_section(finding, member.label, strip, mark)


def strip(values: Integers) -> str:
    """The outline of some values, from 0 to the largest, as the path of an SVG of `STRIP`, `HIGH`.

    Of more values than the strip is wide, each column shows the largest of its share.
    """
    if not values.size or not values.any():
        return ""
    starts = np.unique(np.arange(min(values.size, STRIP)) * values.size // min(values.size, STRIP))
    tops = np.maximum.reduceat(values, starts)
    edges = np.append(starts, values.size) * STRIP / values.size
    heights = HIGH - tops * (HIGH - 1) / tops.max()
    steps = "".join(
        f"V{height:.1f}H{edge:.1f}" for height, edge in zip(heights, edges[1:], strict=True)
    )
    return f"M0 {HIGH}{steps}V{HIGH}Z"
