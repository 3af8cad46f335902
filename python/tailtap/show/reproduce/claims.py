"""What of each published claim is found again: in the published runs, and in runs made here.

A comparison is about what is compared, and is judged here as there. A requirement is about the
machine as well: what holds there and is violated here contradicts it only where the machines do not
differ in anything that is known to matter. Latencies of two machines are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailtap.records.site import Answer, ClaimAnswer, Difference
from tailtap.records.verdict import ClaimRow, Held

_ANSWER: Mapping[Held, Answer] = {
    "held": "reproduced",
    "not shown": "not shown",
    "contradicted": "contradicted",
}


def answer_claims(
    published: Sequence[ClaimRow],
    again: Sequence[ClaimRow],
    here: Sequence[ClaimRow] | None,
    different: Sequence[Difference],
    unmade: str = "",
) -> list[ClaimAnswer]:
    """The answer about each claim of an experiment file.

    `published` is what the site says, `again` what its runs show now, and `here` what runs of this
    machine show; None where none were asked for. `unmade` is why there are no runs here though
    they were asked for.
    """
    said = {row.id: row for row in published}
    shown = {row.id: row for row in here or ()}
    return [_answer(said.get(row.id), row, shown.get(row.id), different, unmade) for row in again]


def _answer(
    published: ClaimRow | None,
    again: ClaimRow,
    here: ClaimRow | None,
    different: Sequence[Difference],
    unmade: str,
) -> ClaimAnswer:
    answer, reason = _of_runs(published, again)
    if answer != "contradicted" and unmade:
        answer, reason = "not shown", f"this machine could not measure it: {unmade}"
    elif answer != "contradicted" and here is not None:
        answer, reason = _here(again, here, different)
    return ClaimAnswer(
        id=again.id,
        says=again.says,
        test=again.test,
        answer=answer,
        reason=reason,
        published=published or again,
        again=again,
        here=here,
    )


def _of_runs(published: ClaimRow | None, again: ClaimRow) -> tuple[Answer, str]:
    """What the published runs say of what was published."""
    if published is None:
        return "contradicted", "the site says nothing of this claim of its experiment"
    if (published.says, published.test) != (again.says, again.test):
        return "contradicted", "the site has another claim of this name than its experiment"
    if published.answer != again.answer:
        said = f"it is published as {published.answer}, and the published runs say"
        return "contradicted", f"{said}: {again.answer} ({again.reason})"
    return _ANSWER[again.answer], again.reason


def _here(again: ClaimRow, here: ClaimRow, different: Sequence[Difference]) -> tuple[Answer, str]:
    if here.answer == "contradicted" and not here.compares:
        other = [one.what for one in different if one.machine]
        if other:
            return (
                "not shown",
                f"violated here, on another machine ({', '.join(other)}): {here.reason}",
            )
    if here.answer == "held" and again.answer == "not shown":
        return "reproduced", f"held here, and not shown there: {here.reason}"
    return _ANSWER[here.answer], here.reason
