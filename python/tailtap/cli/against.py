"""What `tailtap run --against` asks and prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.records.compare import AgainstRecord

STATUS = {"better": 0, "no worse": 0, "worse": 1, "not shown": 5}


def run_against(
    new: Path,
    base: Path,
    set_: Sequence[str],
    base_set: Sequence[str],
    *,
    at: str,
    worse_than: str,
    within: str,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> None:
    """Measure one experiment against another, print the answer, and exit with its status."""
    from tailtap.analysis.causes.late import percentile_of
    from tailtap.base.errors import InputError
    from tailtap.base.units import parse_share, parse_time
    from tailtap.cli.caller import results_of_caller
    from tailtap.cli.progress import listener
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.against import Question, measure_against
    from tailtap.measure.campaign import Campaign, default_folder
    from tailtap.records.record import printed

    p = percentile_of(at)
    if p is None:
        raise InputError(f"--at {at!r}: give a percentile such as p99.9")
    question = Question(
        read_experiment(new, set_), new, read_experiment(base, [*set_, *base_set]), base,
        p, parse_share(worse_than), parse_time(within),
    )  # fmt: skip
    from tailtap.results.database import kept_current

    folder = out or default_folder(f"{question.new.name}-against")
    campaign = Campaign(folder, listeners=[listener(quiet=quiet)])
    with results_of_caller(folder), kept_current(folder):
        found = measure_against(question, campaign)
    if json:
        print(printed(found))
    else:
        print_against(found, worse_than)
        say(f"results: {folder}")
    sys.exit(STATUS[found.answer])


def print_against(found: AgainstRecord, worse_than: str) -> None:
    """Print the answer and what it rests on."""
    from tailtap.analysis.evaluation.percentiles import label

    low = "0" if found.low is None else f"{found.low:.3g}"
    high = "any" if found.high is None else f"{found.high:.3g}"
    ratio = "" if found.ratio is None else f"x {found.ratio:.3g} ({low} to {high}), "
    spoiled = f", {found.spoiled} spoiled" if found.spoiled else ""
    say(
        f"{found.answer}: {label(found.p)} against the base {ratio}{len(found.pairs)} pairs"
        f"{spoiled}; worse is more than {worse_than}"
    )
