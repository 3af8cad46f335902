"""What came of one way of repeating, put together of the things that were looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tailtap.base.foreign import METADATA_BYTES, files_below, read_bytes, sha256
from tailtap.records.site import SUMS, Answer, Finding, Level, RepeatedStep
from tailtap.results.importers.pos.tree import read_crate

ORDER: Sequence[Answer] = ("contradicted", "not shown", "reproduced")
"""The worst answer first."""


def worst(answers: Iterable[Answer]) -> Answer:
    """The worst of some answers; without any, nothing is shown."""
    found = set(answers)
    return next((answer for answer in ORDER if answer in found), "not shown")


def step(level: Level, what: str, checked: int, findings: Sequence[Finding]) -> RepeatedStep:
    """A step that looked at so many things, of which only those that differ are listed."""
    ordered = sorted(findings, key=lambda one: (ORDER.index(one.answer), one.what))
    answers: list[Answer] = [one.answer for one in findings]
    if checked and not answers:
        answers = ["reproduced"]
    wrong = sum(one.answer == "contradicted" for one in findings)
    unknown = sum(one.answer == "not shown" for one in findings)
    told = [
        f"{checked:,} looked at",
        *([f"{wrong:,} not as published"] if wrong else []),
        *([f"{unknown:,} not shown"] if unknown else []),
    ]
    return RepeatedStep(
        level=level,
        what=what,
        answer=worst(answers),
        checked=checked,
        reason=", ".join(told) if checked or findings else "there are none",
        findings=ordered,
    )


def contradicted(what: str, reason: str) -> Finding:
    """What is not as it was published."""
    return Finding(what=what, answer="contradicted", reason=reason)


def not_shown(what: str, reason: str) -> Finding:
    """What nothing tells."""
    return Finding(what=what, answer="not shown", reason=reason)


MADE_THERE = ("again", "redrawn")
"""Folders that what the site says to type writes into it."""
_LINE = re.compile(r"(?P<sum>[0-9a-f]{64}) [ *](?P<name>.+)")


def parse_sums(text: str) -> dict[str, str]:
    """The checksum of each file, by its path, as sha256sum(1) writes them.

    Raises `ValueError` for a line that is none, and for a path that leads out of the folder.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is no checksum of a file")
        name = match["name"]
        if name.startswith("/") or ".." in Path(name).parts or "\0" in name:
            raise ValueError(f"line {number} is about a file outside of the folder")
        if name in found:
            raise ValueError(f"line {number} names {name} again")
        found[name] = match["sum"]
    return found


def check_sums(site: Path, elsewhere: Mapping[str, str]) -> RepeatedStep:
    """Hold the files of a site against ``SHA256SUMS`` and the sums of its crate.

    `elsewhere` are files, by their paths, that may have been put there since, and their sums.
    """
    what = "checksums of all files"
    try:
        wanted = parse_sums(read_bytes(site / SUMS, site, METADATA_BYTES).decode())
    except (OSError, ValueError) as error:
        missing = not (site / SUMS).exists()
        finding = not_shown if missing else contradicted
        said = "it is missing: nothing says what was published" if missing else str(error)
        return step("checksums", what, 0, [finding(SUMS, said)])
    findings: list[Finding] = []
    found: dict[str, str] = {}
    for name, digest in wanted.items():
        try:
            found[name] = sha256(site / name, site)[1]
        except FileNotFoundError:
            findings.append(contradicted(name, "it is missing"))
        except (OSError, ValueError) as error:
            findings.append(contradicted(name, f"it cannot be read: {error}"))
        else:
            if found[name] != digest:
                findings.append(contradicted(name, "it was changed: its checksum is another"))
    for path in files_below(site):
        name = path.relative_to(site).as_posix()
        known = name in wanted or name in elsewhere or name == SUMS
        if not known and name.partition("/")[0] not in MADE_THERE:
            findings.append(contradicted(name, "it was added: no checksum is published of it"))
    changed = {finding.what for finding in findings}
    findings += [
        contradicted(name, f"the crate has another checksum of it than {SUMS}")
        for name, digest in _of_crate(site).items()
        if name in found and name not in changed and found[name] != digest
    ]
    return step("checksums", what, len(wanted), findings)


def _of_crate(site: Path) -> dict[str, str]:
    """The checksums that the site's crate has; none of one that cannot be read."""
    try:
        crate = read_crate(site)
    except (OSError, ValueError):
        return {}  # its own checksum is wrong then, or it was published like that
    entities = crate.entities if crate is not None else {}
    return {name: str(one["sha256"]) for name, one in entities.items() if "sha256" in one}
