"""What a crate of the RISE profile, as pos writes it, says of its files, and what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tailtap.base.errors import InputError
from tailtap.base.foreign import files_below, sha256
from tailtap.records.site import Finding, RepeatedStep, ReproductionRecord
from tailtap.results.importers.pos.runs import find_pos_trees
from tailtap.results.importers.pos.tree import CRATE, Crate, read_crate
from tailtap.results.importers.published import find_published
from tailtap.show.reproduce.steps import contradicted, not_shown, step, worst

MANY = 5
"""Of one kind of finding so many are named, and the others counted."""
SUMS = ("sha256", "sha512", "md5")
"""How crates call the checksum of a file."""


def crate_folder(place: Path) -> Path | None:
    """The folder of the one crate at `place` or below; None where there is none.

    Raises `InputError` where there are several.
    """
    found = [path.parent for path in files_below(place) if path.name == CRATE]
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:MANY])
        raise InputError(f"it holds {len(found)} crates: give one of {names}").at(place)
    return found[0] if found else None


def reproduce_crate(folder: Path, place: str) -> ReproductionRecord:
    """Hold the files of a crate against what it says of them. Raises `InputError`."""
    try:
        crate = read_crate(folder)
    except (OSError, ValueError) as error:
        raise InputError(str(error)).at(folder / CRATE) from error
    assert crate is not None  # `crate_folder` found it
    steps = [_files(crate), _runs(crate)]
    return ReproductionRecord(
        place=place,
        kind="crate",
        name=crate.name or folder.name,
        about=list(_about(crate)),
        answer=worst(one.answer for one in steps),
        steps=steps,
    )


def _about(crate: Crate) -> Iterator[str]:
    """Who made it, with what, and where it is kept."""
    told = crate.description()
    lines = {
        "authors": crate.authors,
        "licence": [crate.licence] if crate.licence else [],
        "archived at": crate.identifiers,
        "controller": told["controller"],
        "images": told["images"],
    }
    yield from (f"{name}: {', '.join(values)}" for name, values in lines.items() if values)
    kinds = {kind: crate.count(kind) for kind in ("ExperimentNode", "CommandFile", "LoopRun")}
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    yield f"entities: {len(crate.entities):,}, with {counts}"


def _files(crate: Crate) -> RepeatedStep:
    """Whether its files are there, with the sizes and checksums that it has of them."""
    missing = crate.missing()
    findings = _few("is missing", missing, contradicted, "the crate names it")
    without: list[str] = []
    files = [
        (name, entity)
        for name, entity in crate.entities.items()
        if "://" not in name and name != CRATE and (crate.folder / unquote(name)).is_file()
    ]
    for name, entity in files:
        wrong = list(_held(crate.folder, unquote(name), entity))
        findings += wrong
        if not wrong and not any(kind in entity for kind in SUMS):
            without.append(name)
    findings += _few("has no checksum", without, not_shown, "a change of it would not be seen")
    known = {CRATE, *map(unquote, crate.entities)}
    folders = tuple(name for name in known if name.endswith("/") and name != "./")
    there = (path.relative_to(crate.folder).as_posix() for path in files_below(crate.folder))
    unnamed = [name for name in there if name not in known]
    inside = [name for name in unnamed if name.startswith(folders)]
    alone = [name for name in unnamed if not name.startswith(folders)]
    findings += _few("is named by no entity", alone, not_shown, "nothing says what it is")
    findings += _few("is within a folder that has an entity, and has none of its own", inside,
                     not_shown, "a change of it would not be seen")  # fmt: skip
    return step("checksums", "files of the crate", len(files) + len(missing), findings)


def _held(folder: Path, name: str, entity: Mapping[str, Any]) -> Iterator[Finding]:
    """What is not as the entity says."""
    path = folder / name
    size = str(entity.get("contentSize", "")).removesuffix(" B")
    if size.isdecimal() and int(size) != path.stat().st_size:
        yield contradicted(name, f"it has {path.stat().st_size:,} B, and the crate says {size} B")
    if "sha256" in entity:
        try:
            if sha256(path, folder)[1] != entity["sha256"]:
                yield contradicted(name, "it was changed: its checksum is another")
        except (OSError, ValueError) as error:
            yield contradicted(name, f"it cannot be read: {error}")


def _runs(crate: Crate) -> RepeatedStep:
    """Whether the loop runs that it names are there, and what they measured."""
    published = find_published(crate.folder)
    trees = find_pos_trees(crate.folder, published)
    runs = [run for tree in trees for run in tree.runs]
    named = crate.count("LoopRun")
    findings: list[Finding] = []
    loops = sum(1 for path in files_below(crate.folder) if path.suffix == ".loop")
    if named != loops:
        findings.append(
            contradicted("loop runs", f"the crate names {named}, and there are {loops} .loop files")
        )
    measured = [run for run in runs if run.read().evaluation]
    if len(measured) < len(runs):
        left = len(runs) - len(measured)
        findings.append(
            not_shown("latencies", f"{left} of {len(runs)} runs have no latencies to evaluate")
        )
    if not runs:
        findings.append(not_shown("runs", "none could be read"))
    return step("captures", "loop runs read", len(runs), findings)


def _few(what: str, names: list[str], kind: Any, reason: str) -> list[Finding]:
    """A finding for each of a few names, or one for all of many."""
    if len(names) <= MANY:
        return [kind(name, f"it {what}: {reason}") for name in names]
    told = ", ".join(names[:MANY])
    return [kind(f"{len(names)} files", f"each {what}: {reason} ({told}, …)")]
