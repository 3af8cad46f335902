"""What of each published claim is found again: in the published runs, and in runs made here.

A comparison is about what is compared, and is judged here as there. A requirement is about the
machine as well: what holds there and is violated here contradicts it only where the machines do not
differ in anything that is known to matter. Latencies of two machines are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_size
from tailtap.records.machine import Environment
from tailtap.records.site import Answer, ClaimAnswer, Difference
from tailtap.records.verdict import ClaimRow, Held
from tailtap.results.history import facts

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


OF_THE_DISK = ("root", "resume", "BOOT_IMAGE", "initrd", "ip", "rd.luks", "cryptdevice", "UUID")
"""Parameters of the kernel that say where its files are."""
_VERSIONS = "version of "


def differences(there: Sequence[Run], here: Sequence[Run]) -> list[Difference]:
    """What is not the same on both, in the order of `_facts`; what nobody says is left out."""
    ours = _together(here)
    found = []
    for what, values in _together(there).items():
        mine = ours.get(what, frozenset())
        if values and mine and values != mine:
            told = (" or ".join(sorted(one)) for one in (values, mine))
            machine = not what.startswith(_VERSIONS)
            found.append(Difference(what=what, there=next(told), here=next(told), machine=machine))
    return found


def _together(runs: Sequence[Run]) -> Mapping[str, frozenset[str]]:
    """What the runs say of each fact."""
    found: dict[str, frozenset[str]] = {}
    for run in runs:
        for what, value in _facts(run.environment):
            found[what] = found.get(what, frozenset()) | ({value} if value else set())
    return found


def _facts(machine: Environment) -> Iterator[tuple[str, str]]:
    """What of a machine decides how late packets are, and by which versions it was measured."""
    cpu = machine.cpu
    told = facts(machine) | {
        "hypervisor": "" if cpu.hypervisor is None else "yes" if cpu.hypervisor else "no",
        "isolated CPUs": _or_none(cpu.isolated),
        "CPUs without a timer": _or_none(cpu.nohz_full),
        "preemption": machine.kernel.preemption or "",
        "command line": _line(machine.kernel.command_line),
        "memory": format_size(machine.memory) if machine.memory else "",
        "control groups": ", ".join(map(str, machine.cgroup_versions or ())),
    }
    yield from ((what, value) for what, value in told.items() if what not in ("host", "tailtap"))
    for program, version in sorted(machine.versions.items()):
        yield f"{_VERSIONS}{program}", version or ""


def _or_none(cpus: str | None) -> str:
    """A set of CPUs, which may be empty."""
    return "" if cpus is None else cpus or "none"


def _line(line: str | None) -> str:
    """A kernel's command line without what says where its files are."""
    words = (line or "").split()
    return " ".join(sorted(word for word in words if word.partition("=")[0] not in OF_THE_DISK))
