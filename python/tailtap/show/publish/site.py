"""One site: what is written into it, in the order in which it is made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import tailtap
from tailtap.analysis.claims.judge import claims_shown
from tailtap.analysis.runs.reader import finished_runs, read_runs, with_result
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.document import load
from tailtap.base.errors import Bug, InputError
from tailtap.base.files import copy, make_folder, move, slugify, write_json, write_text
from tailtap.base.foreign import RECORD_BYTES, read_bytes, sha256
from tailtap.records.machine import Environment
from tailtap.records.record import Notice, as_json
from tailtap.records.site import (
    SITE,
    SUMS,
    SiteCapture,
    SiteFigure,
    SiteMachine,
    SiteRecord,
    SiteRun,
    SiteSoftware,
)
from tailtap.results.exporters.tables import Parquet
from tailtap.show.publish import crate, pages
from tailtap.show.publish.contents import (
    HOLDS_PACKETS,
    TEXTS,
    UNREADABLE,
    Contents,
    published_name,
)
from tailtap.show.publish.redaction import ALLOWED, Redactor
from tailtap.show.report import write_report

if TYPE_CHECKING:
    from tailtap.show.publish import Options

MOST_BYTES = 1_000_000_000
"""GitHub Pages serves sites of up to 1 GB (docs.github.com, GitHub Pages limits)."""
PACKAGES = "environment/packages.txt"
REDRAW = ("tailtap", "report", ".", "--print", "--out", "redrawn")
DUT = "dut"
TEXT_FILES = (".json", ".yaml", *TEXTS)


@dataclass
class Building:
    """A site while it is built."""

    contents: Contents
    site: Path
    options: Options
    progress: Callable[[str], None] = lambda _: None
    figures: list[SiteFigure] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    @cached_property
    def redactor(self) -> Redactor:
        """What replaces, once it has seen all that is published."""
        found = Redactor(
            self.options.allowed,
            self.options.anonymous,
            self.options.hidden,
            self.contents.addresses() | DEFAULT_ADDRESSES,
            self.contents.places,
        )
        self.contents.teach(found)
        return found

    @cached_property
    def experiment(self) -> Experiment:
        """What was published, read as anybody will read it."""
        return with_result(read_runs(self.site))

    def write(self, name: str, text: str) -> None:
        """Write a file of the site."""
        write_text(self.site / name, text, below=self.site)


DEFAULT_ADDRESSES = frozenset(
    ("10.0.0.1-10.0.255.255", "10.1.0.1-10.1.255.255", "fd00::1-fd00::ffff", "fd01::1-fd01::ffff")
)
"""What packets of the generator have where an experiment says nothing."""


def build(building: Building, *, whole: bool = True) -> SiteRecord:
    """Make the site in its folder, and return what ``site.json`` says of it.

    Unless it is to be `whole`, only what is copied is there: neither figures nor tables nor pages.
    """
    building.progress("replacing what identifies people and machines")
    if all(run.origin for run in finished_runs(building.contents.folder)):
        raise InputError(
            "its runs are imported: whoever measured them publishes them; "
            "`tailtap export` writes them for others"
        ).at(building.contents.folder)
    building.contents.write(building.site, building.redactor)
    _require_clean(building)
    captures = list(_captures(building))
    machines, environments = _machines(building)
    if whole:
        _figures(building)
        building.progress("writing tables and pages")
        finished = [run for run in building.experiment.finished if run.record is not None]
        written = Parquet().export(finished, str(building.site / "tables"))
        building.tables += [Path(path).relative_to(building.site).as_posix() for path in written]
    chosen = building.options
    record = SiteRecord(
        name=building.experiment.name,
        software=_software(building),
        scales=_scales(building.site),
        published=_published(building.experiment),
        anonymous=chosen.anonymous,
        licences=dict.fromkeys(("data", "text"), chosen.licence) if chosen.licence else {},
        authors=[author.name for author in chosen.authors],
        machines=machines,
        runs=[_run(building.site, run) for run in building.experiment.runs if run.record],
        figures=building.figures,
        tables=building.tables,
        captures=captures,
        claims=claims_shown(building.experiment),
        redacted=building.redactor.told(),
        allowed=[kind for kind in ALLOWED if kind in chosen.allowed],
        left_out=dict(sorted(building.contents.left_out.items())),
        warnings=list(_warnings(building, captures, len(building.contents.imported))),
    )
    if whole:
        pages.write(building.site, building.experiment, record, chosen.authors)
        write_json(building.site / SITE, as_json(record), below=building.site)
        _crate(building, record, environments)
        _sums(building.site)
    return record


def _captures(building: Building) -> Iterator[SiteCapture]:
    """The files of measurements: where they are, and in the site if that is asked for."""
    options, folder = building.options, building.contents.folder
    for source in building.contents.captures:
        name = published_name(source, building.redactor)
        if options.embed:
            needed = [kind for kind in ("macs", "addresses") if kind not in options.allowed]
            if source.path.suffix == HOLDS_PACKETS and needed:
                raise InputError(
                    "it holds packets with their addresses, which are published as "
                    f"they are: add --allow {','.join(needed)}, or refer to captures"
                ).at(source.path)
            target = building.site / name
            make_folder(target.parent, below=building.site)
            copy(source.path, target, root=folder, below=building.site)
        try:
            size, digest = sha256(source.path, folder)
        except (OSError, ValueError) as error:
            raise InputError(str(error)).at(UNREADABLE).at(source.path) from error
        yield SiteCapture(
            path=name,
            bytes=size,
            sha256=digest,
            place="embedded" if options.embed else "elsewhere",
            url=f"{options.url.rstrip('/')}/{name}" if options.url else None,
        )


def _figures(building: Building) -> None:
    """The report of the site with its figures, and the numbers of each figure."""
    from tailtap.show.publish.figures import write_numbers, write_typed

    site = building.site
    report = write_report(site, site, figures=True, progress=building.progress)
    for figure in report.drawn:
        write_numbers(figure, site / "figures", below=site)
    # Its links to figures stay true.
    move(report.page, site / pages.REPORT, below=site)
    written = [path.stem for path in report.figures]
    titles = {**report.requested, **pages.CAPTIONS}
    for name in dict.fromkeys(written):
        if name in report.requested:  # it has its data already
            write_typed(site / f"figures/{name}.csv", below=site)
        kinds = [f"figures/{name}.{kind}" for kind in ("svg", "pdf", "png")]
        data = [f"figures/{name}.csv", f"figures/{name}.parquet"]
        if not (site / kinds[0]).is_file():
            building.tables += data
            continue
        building.figures.append(
            SiteFigure(
                name=name,
                title=titles[name],
                page=f"figures/{name}.html",
                files=kinds,
                data=data,
                command=list(REDRAW),
                drawn=f"redrawn/figures/{name}",
            )
        )


def _machines(building: Building) -> tuple[list[SiteMachine], dict[str, Environment]]:
    """The machines of all runs, a file each, by what the site calls them."""
    found: dict[str, SiteMachine] = {}
    environments: dict[str, Environment] = {}
    for run in building.experiment.runs:
        if run.record is None:
            continue
        of_run = {DUT: run.record.environment} | {
            role: station.environment for role, station in run.record.stations.items()
        }
        for role, environment in of_run.items():
            if environment is None:
                continue
            name = _machine_name(environment, building.redactor)
            if name not in found:
                file = f"environment/{name}.json"
                make_folder(building.site / "environment", below=building.site)
                content = as_json(environment)
                write_json(building.site / file, content, below=building.site)
                found[name] = SiteMachine(name=name, roles=[], file=file, runs=[])
                environments[name] = environment
            machine = found[name]
            machine.roles += [] if role in machine.roles else [role]
            machine.runs += [] if run.slug in machine.runs else [run.slug]
    return list(found.values()), environments


def _machine_name(environment: Environment, redactor: Redactor) -> str:
    """What the site calls a machine: the name of a file, too."""

    allowed = "hostnames" in redactor.allowed
    name = environment.hostname or ""
    return slugify(name) if name and (allowed or name.startswith("host-")) else "machine"


def _run(site: Path, run: Run) -> SiteRun:
    record = run.record
    assert record is not None and run.own_folder is not None
    folder = run.own_folder.relative_to(site).as_posix()
    return SiteRun(
        number=record.number,
        slug=record.slug,
        repeat=record.repeat,
        status=record.status,
        valid=record.valid,
        error=record.error,
        variables=record.variables,
        parameters=dict(record.parameters.whole),
        folder=folder,
        page=f"{folder}/index.html",
    )


def _software(building: Building) -> SiteSoftware:
    """This program: its version, a checksum of its files, and what it was run with."""
    make_folder(building.site / "environment", below=building.site)
    building.write(PACKAGES, "".join(f"{name}=={version}\n" for name, version in _packages()))
    package = Path(tailtap.__file__).parent
    paths = (path for path in sorted(package.rglob("*")) if path.suffix in (".py", ".so"))
    listed = [[path.relative_to(package).as_posix(), *sha256(path, package)] for path in paths]
    code = hashlib.sha256(msgspec.json.encode(listed)).hexdigest()
    return SiteSoftware(version=tailtap.__version__, code=code, packages=PACKAGES)


def _packages() -> list[tuple[str, str]]:
    """What tailtap needs, and what that needs, with the versions that are installed here."""
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    wanted = ["tailtap"]
    while wanted:
        name = wanted.pop()
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        known = package.metadata["Name"].lower()
        if known in found:
            continue
        found[known] = package.version
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    return sorted(found.items())


def _scales(site: Path) -> list[str]:
    path = site / "experiment.yaml"
    scales = load(path).data.get("scales") if path.is_file() else None
    return list(map(str, scales)) if isinstance(scales, Mapping) else []


def _published(experiment: Experiment) -> str | None:
    """The day on which the last run ended: the same site is made of the same runs on any day."""
    ends = [run.record.finished for run in experiment.runs if run.record and run.record.finished]
    return max(ends)[:10] if ends else None


def _warnings(
    building: Building, captures: Sequence[SiteCapture], imported: int
) -> Iterator[Notice]:
    """What its author should know before it leaves."""
    if building.options.licence is None:
        yield Notice("no-licence", "no licence was chosen, so that nobody may use it")
    if not building.options.authors and not building.options.anonymous:
        yield Notice("no-authors", "nobody is named as its author")
    if imported:
        yield Notice(
            "imported-left-out",
            f"{imported} imported runs are left out: whoever measured them publishes them",
        )
    if captures and not building.options.embed and not building.options.url:
        yield Notice(
            "captures-nowhere",
            f"{len(captures)} files of measurements are named with their checksums, but not where "
            "they are",
        )
    if building.options.embed and any(one.path.endswith(HOLDS_PACKETS) for one in captures):
        yield Notice("packets", "captures hold packets as they were, with all that is in them")
    ambiguous = sum(building.redactor.ambiguous.values())
    if ambiguous:
        yield Notice(
            "ambiguous-name",
            "the name of a machine or person is a word of the experiment as well: it was replaced "
            "in fields of its own, and stays elsewhere",
        )
    size = sum(path.stat().st_size for path in building.site.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        yield Notice(
            "large-site",
            f"it has {size / 1e9:.1f} GB, and hosts of static pages take 1 GB: put captures into "
            "an archive, and refer to them",
        )


def _crate(building: Building, record: SiteRecord, environments: Mapping[str, Environment]) -> None:
    site = building.site
    own = (crate.METADATA, crate.PREVIEW)
    files = [crate.File(name, *sha256(site / name, site)) for name in _names(site, own)]
    records = {run.slug: run.record for run in building.experiment.runs if run.record}
    content = crate.metadata(
        record, files, building.options.authors, records, environments, pages.description(record)
    )
    pages.write_preview(site, record, content)
    building.write(crate.METADATA, f"{json.dumps(content, indent=1)}\n")


def _names(site: Path, without: Iterable[str] = ()) -> list[str]:
    names = (path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    return sorted(set(names) - set(without))


def _sums(site: Path) -> None:
    """A line for each file, as sha256sum(1) reads it."""
    lines = [f"{sha256(site / name, site)[1]}  {name}\n" for name in _names(site, (SUMS,))]
    write_text(site / SUMS, "".join(lines), below=site)


def _require_clean(building: Building) -> None:
    """Raise `Bug` if a value that was replaced stands in a text file: it must not leave."""
    originals = [value for value in building.redactor.originals() if len(value) > 2]
    for source in building.contents.sources:
        path = building.site / published_name(source, building.redactor)
        if path.suffix not in TEXT_FILES or not path.is_file() or source.raw:
            continue
        text = read_bytes(path, building.site, RECORD_BYTES).decode("utf-8", "replace")
        if any(_stands_in(value, text) for value in originals):
            raise Bug("what identifies was not replaced: nothing was published").at(source.name)


def _stands_in(value: str, text: str) -> bool:
    """Whether a value stands there by itself, and not within another word."""
    place = text.find(value)
    while place >= 0:
        around = text[max(place - 1, 0) : place] + text[place + len(value) : place + len(value) + 1]
        if not any(letter.isalnum() for letter in around):
            return True
        place = text.find(value, place + 1)
    return False
