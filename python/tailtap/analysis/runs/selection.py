"""Which runs a report shows: what `tailtap report --runs` understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePath

from tailtap.analysis.runs.reader import with_result
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.units import parse_rate


def select(experiment: Experiment, selections: Sequence[str]) -> Experiment:
    """The experiment with only the runs that fit any of `selections`; all when there is none.

    A selection is words with commas between them, all of which must fit a run: ``own`` or
    ``imported``, a packet rate such as ``10 kpkt/s``, a run's number, or one of its `names`, in
    which * and ? stand for any letters. Case does not matter. Raises `InputError` for a selection
    that no run fits, and when no run that fits has a result.
    """
    if not selections:
        return experiment
    chosen: set[int] = set()
    for selection in selections:
        words = [word.strip() for word in selection.split(",") if word.strip()]
        fitting = [
            place
            for place, run in enumerate(experiment.runs)
            if words and all(fits(run, word) for word in words)
        ]
        if not fitting:
            raise WrongValue("--runs", selection, f"no run fits; {_choice(experiment)}")
        chosen.update(fitting)
    kept = tuple(run for place, run in enumerate(experiment.runs) if place in chosen)
    return with_result(replace(experiment, runs=kept))


def names(run: Run) -> list[str]:
    """What a run can be called by.

    Its folder's name, the values that were varied, and platform and forwarder; of an imported run
    each part of its path from the tree's name on.
    """
    known = [run.dut.platform, run.dut.forwarder]
    parts = (run.origin.tree, *PurePath(run.origin.place).parts) if run.origin else ()
    every = [run.slug, *run.variables.values(), *known, *parts]
    return list(dict.fromkeys(str(name) for name in every if name))


def fits(run: Run, word: str) -> bool:
    """Whether one word of a selection fits a run."""
    if word.lower() in ("own", "imported"):
        return (run.origin is None) == (word.lower() == "own")
    if word.isdecimal():
        return str(run.number) == word.lstrip("0")
    try:
        return run.rate == parse_rate(word)
    except InputError:
        return any(fnmatchcase(name.lower(), word.lower()) for name in names(run))


def _choice(experiment: Experiment) -> str:
    own, imported = len(experiment.own), len(experiment.imported)
    every = dict.fromkeys(name for run in experiment.runs for name in names(run)[1:])
    shown = ", ".join(list(every)[:20])
    more = ", …" if len(every) > 20 else ""
    return f"there are {own} own and {imported} imported runs, known by {shown}{more}"
