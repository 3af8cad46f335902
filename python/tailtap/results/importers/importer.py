"""Result trees of others as run folders, next to your own runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.runs.folder import SUFFIXES, ExperimentFolder, RunFolder
from tailtap.analysis.runs.reader import DATABASE, run_folders
from tailtap.base.errors import InputError
from tailtap.base.files import copy, make_folder, move, remove_tree, sync_tree, write_text
from tailtap.base.foreign import RECORD_BYTES, read_bytes, storable
from tailtap.base.writing import writing
from tailtap.records.interrupts import FILE as SAMPLES
from tailtap.records.printed import ImportRecord
from tailtap.records.record import Notice
from tailtap.records.run import Instrument, RunRecord
from tailtap.results.database import refresh
from tailtap.results.importers.importable import Content, Importable
from tailtap.results.importers.pos.runs import PosTree, find_pos_trees
from tailtap.results.importers.published import find_published
from tailtap.results.importers.tools import TOOLS
from tailtap.results.importers.tools.runs import find_tool_runs

#: Imported runs are numbered from here on: the numbers of an experiment's own runs stay free.
FIRST_NUMBER = 1_000_001
NAMED = 20
"""Files that are named of those of which nothing is known."""
DRAFTS = ".tailtap-import"
"""The folder beside that of the runs in which these are made."""


def import_tree(
    tree: Path,
    out: Path,
    unit: int | None = None,
) -> ImportRecord:
    """Make run folders of every run of a tree, in the experiment's folder `out`, made if missing.

    `out` may be the name of its database, too.

    `tree` holds captures, published result files, result trees of pos, crates of the RISE profile
    or result files of `TOOLS`, at any depth. A run is identified by the content of its files or, if
    that changed, by their path: importing a tree again, or after it was moved, replaces its runs.
    All runs are imported or, after an error, none. `unit`, in ns, is that of files that do not say
    it. A damaged file is a warning, stored with the run; the run's other files are used. A copy of
    another run of the tree is left out.

    Raises `InputError` when `tree` holds no run or another tailtap writes into `out`,
    `MachineError` when that cannot be written.
    """
    if not tree.is_dir():
        raise InputError("no such folder; give the folder of a published result tree").at(tree)
    if out.name == DATABASE:
        out = out.parent
    if out.is_file() or out.suffix == ".duckdb":
        raise InputError("runs are imported as folders: give a folder by --into").at(out)
    published = find_published(tree)
    pos = find_pos_trees(tree, published)
    taken = {source for one in pos for source in one.taken}
    runs: list[Importable] = [run for run in published if run.source not in taken]
    runs += [run for one in pos for run in one.runs]
    unknown: list[Path] = []
    if not pos:  # what scripts of a tree of pos left is told by its runs
        files = {path for run in published for path in run.all_files}
        measured, others = find_tool_runs(tree, files, unit)
        runs += measured
        unknown = [] if published else others
    if not runs:
        raise InputError(_nothing(tree, pos, unknown))
    folder = ExperimentFolder(out)
    with writing(out, "give another folder by --into"):
        make_folder(folder.runs, below=out)
        with folder.locked():
            found = _import_all(folder, runs, storable(tree.resolve().name))
    refresh(out)
    found.experiments = [one.summary for one in pos if one.runs]
    if unknown:
        text = f"of no known tool: {_named(tree, unknown)}"
        found.warnings.append(Notice("file-unknown", text))
    return found


def _named(tree: Path, files: Sequence[Path]) -> str:
    names = [str(path.relative_to(tree.resolve())) for path in files]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{tree}: {', '.join(names[:NAMED])}{more}"


def _nothing(tree: Path, trees: Sequence[PosTree], unknown: Sequence[Path]) -> str:
    """Why there is nothing to import."""
    damaged = [warning.message for one in trees for warning in one.warnings]
    if damaged:
        return f"{damaged[0]}; nothing of it can be imported"
    if trees:
        return (
            f"{trees[0].root}: a result tree of pos without a run: copy the files like "
            "HOST/2020-10-07_23-27-11_423961_unknown_run003.loop, or scripts/HOST/…, too"
        )
    return (
        f"{tree}: no result files in it: none like "
        "latencies-pre-rate10000-repeat0.pcap.zst.trim_ms0.percentiles.csv, and no result tree of "
        "pos (config/allocation.json, HOST/*_run0.loop) or RISE crate (ro-crate-metadata.json), "
        f"and nothing of {', '.join(TOOLS)}" + (f" ({_named(tree, unknown)})" if unknown else "")
    )


def _import_all(
    folder: ExperimentFolder,
    runs: Sequence[Importable],
    experiment: str,
) -> ImportRecord:
    """Make drafts of all run folders, and put them in their places when all are whole."""
    there = dict(_there(folder))
    by_digest, by_source = (
        {str(text): path for path, one in there.items() if (text := one.parameters.whole.get(name))}
        for name in ("digest", "source")
    )
    names = {path.name for path in folder.runs.iterdir()}
    following = max([FIRST_NUMBER - 1, *(one.number for one in there.values())]) + 1
    drafts = folder.path / DRAFTS
    made: dict[str | None, RunRecord] = {}
    places: dict[Path, RunFolder] = {}
    warnings: list[Notice] = []
    new = replaced = 0
    try:
        remove_tree(drafts, below=folder.path)
        for run in runs:
            content = run.read()
            record = run.record(experiment)
            twin = made.get(run.digest) if run.digest else None
            if twin is not None:
                source = twin.parameters.whole["source"]
                copied = Notice(
                    "run-twice", storable(f"{run.source}: left out, {source} is the same")
                )
                twin.warnings.append(copied)
                warnings.append(copied)
                continue
            known = by_digest.get(run.digest or "", by_source.get(storable(run.source)))
            if known is None or known in places:
                known = folder.runs / _free(record.slug, names)
                record.number, following, new = following, following + 1, new + 1
            else:
                record.number = there[known].number
                replaced += run.digest not in by_digest
            record.slug = known.name
            record.warnings = [Notice(one.code, storable(one.message)) for one in run.warnings]
            made[run.digest or run.source] = record
            places[known] = draft = RunFolder(drafts / known.name, folder.path)
            make_folder(draft.path, below=folder.path)
            _write(draft, record, content)
            warnings += run.warnings
            if isinstance(content.evaluation, Evaluation):
                warnings += content.evaluation.warnings
        for record in made.values():
            draft = places[folder.runs / record.slug]
            draft.write(record)
            sync_tree(draft.path)
        if link := next((place for place in places if place.is_symlink()), None):
            raise InputError("this is a link, and no run is put in its place: remove it").at(link)
        for place, draft in places.items():
            remove_tree(place, below=folder.path)
            move(draft.path, place, below=folder.path)
    finally:
        remove_tree(drafts, below=folder.path)
    return ImportRecord(
        database=str(folder.database), runs=len(places), new=new, replaced=replaced,
        experiments=[], warnings=warnings,
    )  # fmt: skip


def _there(folder: ExperimentFolder) -> Iterator[tuple[Path, RunRecord]]:
    """The runs that were imported before."""
    for path in run_folders(folder.path):
        try:
            record = RunFolder(path, folder.path).read()
        except InputError:
            continue
        if record.status == "imported":
            yield path, record


def _free(slug: str, names: set[str]) -> str:
    """A name that no other run folder has."""
    name, number = slug, 1
    while name in names:
        number += 1
        name = f"{slug}-{number}"
    names.add(name)
    return name


def _write(draft: RunFolder, record: RunRecord, content: Content) -> None:
    """What was read of a run; its captures are other names of those that were imported."""
    if content.evaluation is not None:
        content.evaluation.write(draft.evaluation, below=draft.top)
    for side, path in zip(("ingress", "egress"), content.captures or (), strict=False):
        suffix = next((one for one in SUFFIXES if path.name.endswith(f".{one}")), "pcap")
        copy(path, draft.path / f"{side}.{suffix}", below=draft.top, link=True)
    if content.samples is not None:
        text = read_bytes(content.samples, None, RECORD_BYTES).decode()
        write_text(draft.path / SAMPLES, text, below=draft.top)
        record.instruments["interrupts"] = Instrument(facts=[], files=[SAMPLES])
