"""The site as a crate: RO-Crate with the profiles Process Run Crate and RISE.

Process Run Crate 0.5 (https://w3id.org/ro/wfrun/process/0.5) says that a program ran, on what and
with which results: each run is an action of tailtap. RISE 1.0.0
(https://tumi8.github.io/rise-ro-crate-profile/1.0.0/) says what an experiment on a testbed is: its
nodes, what they booted, and each run of its loop. Its types and properties are not in RO-Crate's
own context, and so they are in this one.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.base.errors import PackageMissing, WrongValue
from tailtap.records.machine import Environment
from tailtap.records.run import RunRecord
from tailtap.records.site import SiteRecord, SiteRun

if TYPE_CHECKING:
    from rocrate.model.entity import Entity
    from rocrate.rocrate import ROCrate


METADATA, PREVIEW = "ro-crate-metadata.json", "ro-crate-preview.html"
VERSION = "1.1"
"""Process Run Crate 0.5 is made of RO-Crate 1.1."""
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
RISE = "https://tumi8.github.io/rise-ro-crate-profile/1.0.0/"
PROGRAM = "https://pypi.org/project/tailtap/"
SPDX = "https://spdx.org/licenses/"
RISE_TERMS = (
    "Experiment",
    "ExperimentNode",
    "OSImage",
    "CommandFileLooped",
    "LoopRun",
    "bootedImage",
    "bootParameters",
    "executedCommands",
    "executedOn",
    "experimentController",
    "hardware",
    "loopRuns",
    "resultData",
    "runOfLoopedCommand",
)
TERMS: Mapping[str, str] = {
    "sha256": "https://schema.org/sha256",
    **{term: f"{RISE}#{term}" for term in RISE_TERMS},
}
"""What RO-Crate 1.1 has no name for."""
TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
    ".cff": "application/yaml",
    ".md": "text/markdown",
    ".sh": "application/x-sh",
    ".log": "text/plain",
}
STATES = {"done": "http://schema.org/CompletedActionStatus"}
FAILED = "http://schema.org/FailedActionStatus"


@dataclass(frozen=True)
class File:
    """A file of the site."""

    name: str
    bytes: int
    sha256: str


def require_library() -> None:
    """Raises `PackageMissing` without the library that makes crates."""
    if find_spec("rocrate") is None:
        raise PackageMissing("the crate of a site needs", "rocrate", "'tailtap[publish]'")


def metadata(
    site: SiteRecord,
    files: Sequence[File],
    authors: Sequence[Author],
    records: Mapping[str, RunRecord],
    environments: Mapping[str, Environment],
    description: str,
) -> Mapping[str, Any]:
    """The content of ``ro-crate-metadata.json``.

    `files` are all of the site but the crate's own two and the checksums; `records` are those of
    the runs by their slugs, and `environments` the machines by their names. Raises `MachineError`
    without the library that makes crates.
    """
    require_library()
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version=VERSION)
    crate.metadata.extra_terms.update(TERMS)
    made = _Crate(crate, site, authors)
    made.root(description)
    made.files(files)
    made.machines(environments)
    made.runs(records)
    return crate.metadata.generate()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Crate:
    """The entities of one site."""

    crate: ROCrate
    site: SiteRecord
    authors: Sequence[Author]

    def add(self, address: str, kind: str | list[str], /, **properties: object) -> Entity:
        """An entity that is no file."""
        from rocrate.model.contextentity import ContextEntity

        entity = ContextEntity(self.crate, address, {"@type": kind, **_said(properties)})
        return self.crate.add(entity)

    def root(self, description: str) -> None:
        """The crate itself: what it is, whose, under which licence, and the program."""
        root, site = self.crate.root_dataset, self.site
        root["name"] = site.name
        root["description"] = description
        root["datePublished"] = site.published or "1970-01-01"
        profiles = {
            PROCESS: ("Process Run Crate", "0.5"),
            RISE: ("Research Infrastructure Shareable Experiments RO-Crate Profile", "1.0.0"),
        }
        root["conformsTo"] = [
            self.add(address, ["CreativeWork", "Profile"], name=name, version=version)
            for address, (name, version) in profiles.items()
        ]
        licence = site.licences.get("data")
        if licence is None:
            root["license"] = "No licence was chosen: ask the authors."
        else:
            root["license"] = self.add(
                f"{SPDX}{licence}",
                "CreativeWork",
                name=licence,
                identifier=licence,
                description=f"The licence {licence} of the SPDX list.",
            )
        if self.authors:
            root["author"] = _one([self._person(author) for author in self.authors])
            publishers = [
                one for one in self.crate.contextual_entities if one.type == "Organization"
            ]
            if publishers:
                root["publisher"] = publishers[0]
        self.add(
            PROGRAM,
            "SoftwareApplication",
            name="tailtap",
            softwareVersion=site.software.version,
            url=PROGRAM,
            description="Measures, explains and predicts the tail latency of packet processing.",
        )

    def _person(self, author: Author) -> Entity:
        affiliation = None
        if author.affiliation:
            name = "-".join(author.affiliation.split())
            affiliation = self.crate.dereference(f"#{name}") or self.add(
                f"#{name}", "Organization", name=author.affiliation
            )
        given, family = author.names
        return self.add(
            author.address or f"#{'-'.join(author.name.split())}",
            "Person",
            name=author.name,
            givenName=given,
            familyName=family,
            affiliation=affiliation,
        )

    def files(self, files: Iterable[File]) -> None:
        """Each file, with its size and checksum, and folders of runs."""
        from rocrate.model.dataset import Dataset
        from rocrate.model.file import File as CrateFile

        titles = {run.folder: f"Run {run.slug}" for run in self.site.runs}
        kinds = {
            "experiment.yaml": ["File", "Experiment"],
            "repeat.sh": ["File", "CommandFileLooped"],
            **{f"{run.folder}/run.json": ["File", "LoopRun"] for run in self.site.runs},
        }
        by_folder: dict[str, list[Entity]] = {folder: [] for folder in titles}
        for file in files:
            entity = self.crate.add(
                CrateFile(
                    self.crate,
                    None,
                    file.name,
                    properties={
                        "@type": kinds.get(file.name, "File"),
                        "name": Path(file.name).name,
                        "contentSize": str(file.bytes),
                        "encodingFormat": encoding(file.name),
                        "sha256": file.sha256,
                    },
                )
            )
            for folder, inner in by_folder.items():
                if file.name.startswith(f"{folder}/"):
                    inner.append(entity)
        for folder, inner in by_folder.items():
            dataset = Dataset(self.crate, None, f"{folder}/", properties={"name": titles[folder]})
            self.crate.add(dataset)["hasPart"] = _one(inner)
        for capture in self.site.captures:
            if capture.url:  # elsewhere on the web, with the checksum by which it is recognised
                remote = CrateFile(
                    self.crate,
                    capture.url,
                    fetch_remote=False,
                    validate_url=False,
                    properties={
                        "name": capture.path,
                        "contentSize": str(capture.bytes),
                        "encodingFormat": encoding(capture.path),
                        "sha256": capture.sha256,
                    },
                )
                self.crate.add(remote)

    def machines(self, environments: Mapping[str, Environment]) -> None:
        """The nodes of the experiment, and what they booted."""
        for machine in self.site.machines:
            environment = environments[machine.name]
            system = " ".join(
                part for part in (environment.distribution, environment.kernel.release) if part
            )
            image = None
            if system:
                known = f"#image-{'-'.join(system.split())}"
                image = self.crate.dereference(known) or self.add(
                    known, "OSImage", name=system, description=environment.kernel.version
                )
            self.add(
                f"#{machine.name}",
                "ExperimentNode",
                name=machine.name,
                description=f"Its part: {', '.join(machine.roles)}.",
                hardware=self.crate.dereference(machine.file),
                bootedImage=image,
                bootParameters=(environment.kernel.command_line or "").split() or None,
            )

    def runs(self, records: Mapping[str, RunRecord]) -> None:
        """Each run as an action of the program, and as a run of the experiment's loop."""
        experiment = self.crate.dereference("experiment.yaml")
        command, program = self.crate.dereference("repeat.sh"), self.crate.dereference(PROGRAM)
        loop, actions = [], []
        for run in self.site.runs:
            record = self.crate.dereference(f"{run.folder}/run.json")
            result = self.crate.dereference(f"{run.folder}/")
            when = records[run.slug]
            values = ", ".join(f"{name} = {value}" for name, value in run.variables.items())
            record["runOfLoopedCommand"] = command
            record["resultData"] = result
            record["executedOn"] = _one(self._nodes(run))
            for name, value in (("startTime", when.started), ("endTime", when.finished)):
                if value:
                    record[name] = value
            loop.append(record)
            actions.append(
                self.add(
                    f"#run-{run.slug}",
                    "CreateAction",
                    name=f"Measured {run.slug}",
                    description=f"{values or 'nothing was varied'}; repeat {run.repeat}",
                    instrument=program,
                    object=[one for one in (experiment,) if one],
                    result=[result],
                    startTime=when.started,
                    endTime=when.finished,
                    actionStatus=STATES.get(run.status, FAILED),
                    error=run.error,
                    agent=self.crate.root_dataset.get("author"),
                )
            )
        self.crate.root_dataset["mentions"] = _one(actions)
        command["loopRuns"] = _one(loop)
        nodes = [self.crate.dereference(f"#{machine.name}") for machine in self.site.machines]
        command["executedOn"] = _one(nodes)
        if experiment is not None:
            experiment["executedCommands"] = command
            experiment["experimentController"] = program

    def _nodes(self, run: SiteRun) -> list[Entity]:
        return [
            self.crate.dereference(f"#{machine.name}")
            for machine in self.site.machines
            if run.slug in machine.runs
        ]


def _said(properties: Mapping[str, object]) -> dict[str, Any]:
    """What is said, with entities as references."""
    return {name: _reference(value) for name, value in properties.items() if value}


def _reference(value: object) -> object:
    if isinstance(value, list):
        return _one([_reference(one) for one in value])
    return {"@id": value.id} if hasattr(value, "id") else value


def _one(values: list[Any]) -> Any:
    """A value, where there is one alone: RO-Crate's recommendation."""
    return values[0] if len(values) == 1 else values


def encoding(name: str) -> str:
    """The media type of a file by its name."""
    suffix = Path(name).suffix
    return TYPES.get(suffix) or mimetypes.types_map.get(suffix) or "application/octet-stream"


_AUTHOR = re.compile(
    r"(?P<name>[^<>()]+?)\s*(?:<(?P<orcid>[^<>]+)>)?\s*(?:\((?P<affiliation>[^()]+)\))?"
)
_ORCID = re.compile(r"(?:https://orcid\.org/)?((?:[0-9]{4}-){3}[0-9]{3}[0-9X])")


@dataclass(frozen=True)
class Author:
    """A person."""

    name: str
    orcid: str = ""
    """Sixteen digits in four groups, or empty."""
    affiliation: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """Given names and family name, which is taken for the last word."""
        given, _, family = self.name.rpartition(" ")
        return given, family

    @property
    def address(self) -> str:
        """The address that the ORCID is, or empty."""
        return f"https://orcid.org/{self.orcid}" if self.orcid else ""


def parse_author(text: str) -> Author:
    """An author, such as ``Ada Lovelace <0000-0002-1825-0097> (Analytical Society)``."""
    found = _AUTHOR.fullmatch(text.strip())
    orcid = _ORCID.fullmatch((found["orcid"] or "").strip()) if found else None
    if found is None or (found["orcid"] and (orcid is None or not _sound(orcid[1]))):
        raise WrongValue(
            "--author",
            text,
            "write NAME <ORCID> (AFFILIATION), the last two if you "
            "like, such as 'Ada Lovelace <0000-0002-1825-0097> (Analytical Society)'",
        )
    return Author(found["name"], orcid[1] if orcid else "", (found["affiliation"] or "").strip())


def _sound(orcid: str) -> bool:
    """Whether the last digit of an ORCID is that of ISO 7064, 11-2."""
    digits = orcid.replace("-", "")
    total = 0
    for digit in digits[:-1]:
        total = (total + int(digit)) * 2
    check = (12 - total % 11) % 11
    return digits[-1] == ("X" if check == 10 else str(check))


def parse_licence(text: str) -> str:
    """The SPDX name of a licence. Raises `InputError` for what the list does not have."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        found = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        found = ""
    if not found or " " in found or found.startswith("LicenseRef"):
        raise WrongValue(
            "--license",
            text,
            "this is no name of the SPDX list (spdx.org/licenses): "
            "data are often under CC-BY-4.0 or CC0-1.0",
        )
    return found
