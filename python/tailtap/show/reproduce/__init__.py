"""What was published, repeated: in rising cost, each way with an answer.

`steps.py` looks at the files, `captures.py` evaluates captures again, `drawing.py` makes figures
and tables again, and `claims.py` judges claims by the published runs and by runs that were made
here, and tells in what their machines differ. Sites that are no folder of this machine come by
`fetching.py`. Crates of pos (`crate.py`) and published result files
(`results.py`) are looked at as far as their files reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.analysis.claims.judge import claims_shown
from tailtap.analysis.runs.reader import read_runs, run_folders
from tailtap.analysis.runs.run import Experiment
from tailtap.base.errors import InputError, MachineError
from tailtap.records.record import read
from tailtap.records.site import (
    SITE,
    Answer,
    Difference,
    Level,
    RepeatedStep,
    ReproductionRecord,
    SiteRecord,
)
from tailtap.records.verdict import ClaimRow
from tailtap.results.importers.published import find_published
from tailtap.show.reproduce.claims import answer_claims, differences
from tailtap.show.reproduce.steps import contradicted, not_shown, step, worst

LEVELS: Sequence[Level] = ("checksums", "captures", "figures", "small", "full")
"""In rising cost: each includes those before it, but that full takes the place of small."""
MEASURING: Sequence[Level] = ("small", "full")
CHANGED = "the site is not as it was published, and so its experiment is not run: see its checksums"
MADE_HERE = "measured on this machine"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What a user decides."""

    level: Level = "figures"
    captures: Path | None = None
    """Where captures are that the site names and does not have."""
    fetch: int = 0
    """How many bytes of captures may be fetched from where the site says that they are."""
    """Those that the site's report may name."""

    def includes(self, level: Level) -> bool:
        """Whether this level is to be reached, or passed."""
        return LEVELS.index(level) <= LEVELS.index(self.level)


Measure = Callable[[Path], Path]
"""Makes the runs of a site's experiment on this machine: from the site to their folder."""


def reproduce(
    folder: Path,
    place: str,
    asked: Asked,
    measure: Measure | None = None,
    progress: Progress = lambda _: None,
) -> ReproductionRecord:
    """Repeat what is published in `folder`, which the user called `place`.

    Raises `InputError` for what is no site, crate or result file, and for a site whose record is
    damaged where nothing but that can be told.
    """
    if (folder / SITE).is_file():
        return _site(folder, place, asked, measure, progress)
    from tailtap.show.reproduce.crate import crate_folder, reproduce_crate

    if asked.level in MEASURING:
        raise InputError("only a site of `tailtap publish` says how to measure again").at(place)
    crate = crate_folder(folder)
    if crate is not None:
        return reproduce_crate(crate, place)
    if find_published(folder):
        from tailtap.show.reproduce.results import reproduce_results

        return reproduce_results(folder, place, progress)
    if run_folders(folder):
        raise InputError(
            "these are runs: give what `tailtap publish` made of them or, of imported runs, the "
            "files that they were imported from"
        ).at(place)
    raise InputError(
        f"no {SITE} in it, no crate (ro-crate-metadata.json), and no published result "
        "files: give the folder or the address of what `tailtap publish` made"
    ).at(place)


def _site(
    site: Path, place: str, asked: Asked, measure: Measure | None, progress: Progress
) -> ReproductionRecord:
    from tailtap.show.reproduce.captures import evaluate_captures
    from tailtap.show.reproduce.steps import check_sums

    progress("comparing checksums")
    try:
        record = read(site / SITE, SiteRecord)
    except InputError as error:
        return _damaged(place, check_sums(site, {}), str(error))
    steps = [check_sums(site, {one.path: one.sha256 for one in record.captures})]
    if asked.includes("captures"):
        steps.append(evaluate_captures(site, record, asked.captures, progress, most=asked.fetch))
    found = ReproductionRecord(
        place=place, kind="site", name=record.name, answer="not shown", steps=steps
    )
    if asked.includes("figures"):
        from tailtap.show.reproduce.drawing import draw_again

        steps.append(draw_again(site, record, progress))
        add_claims(site, record, found, asked, measure, progress)
    answers: list[Answer] = [one.answer for one in steps]
    found.answer = worst([*answers, *(one.answer for one in found.claims)])
    return found


def _damaged(place: str, sums: RepeatedStep, why: str) -> ReproductionRecord:
    """All that can be told of a site whose record cannot be read."""
    sums.findings.append(contradicted(SITE, why))
    sums.answer = "contradicted"
    return ReproductionRecord(
        place=place, kind="site", name="", answer="contradicted", steps=[sums]
    )


def add_claims(
    site: Path,
    record: SiteRecord,
    found: ReproductionRecord,
    asked: Asked,
    measure: Measure | None,
    progress: Progress,
) -> None:
    """Judge the claims by the published runs and, if that is asked for, by runs made here."""
    progress("judging the claims again")
    there = read_runs(site)
    again = claims_shown(there)
    here: list[ClaimRow] | None = None
    different: list[Difference] = []
    unmade = ""
    if measure is not None and asked.level in MEASURING:
        try:
            if found.steps[0].answer == "contradicted":
                raise MachineError(CHANGED)
            made = read_runs(measure(site))
        except MachineError as error:
            unmade = str(error)
            found.steps.append(step(asked.level, MADE_HERE, 0, [not_shown("runs", unmade)]))
        else:
            here = claims_shown(made)
            different = differences(there.own, made.own)
            found.folder = str(made.folder)
            found.differences = different
            found.steps.append(_made(asked.level, made))
    found.claims = answer_claims(record.claims, again, here, different, unmade)


def _made(level: Level, made: Experiment) -> RepeatedStep:
    """Which runs this machine could make."""
    findings = [not_shown(run.slug, run.excluded) for run in made.own if run.excluded]
    return step(level, MADE_HERE, len(made.own), findings)
