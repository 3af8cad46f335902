"""What commands do, as functions: `tailtap.run`, `verdict`, `compare`, `judge_change`, `explain`,
`search`, `publish`, `reproduce`. docs/howto/python.md shows them. Shares are from 0 to 1, times are
ns.

Nothing is printed. Errors are those of `tailtap.base.errors`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tailtap.base.errors import InputError, MachineError, TailtapError

if TYPE_CHECKING:
    from tailtap.analysis.causes.trace import Trace
    from tailtap.analysis.runs.run import Experiment, Run
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.boots import Boots
    from tailtap.measure.campaign import Listener
    from tailtap.measure.roles import Stations
    from tailtap.records.causes import CausesRecord
    from tailtap.records.compare import CompareRecord, GateRecord
    from tailtap.records.evaluation import UndisturbedRecord
    from tailtap.records.search import SearchedRecord
    from tailtap.records.site import Level, PublishRecord, ReproductionRecord
    from tailtap.records.verdict import VerdictRecord

Place = str | Path
Places = Place | Sequence[Place]
Described = Place | Mapping[str, Any]
"""An experiment: its file, or what would be in it."""

Progress = Callable[[str], None]
"""Is told what is worked on."""

LONG_NS, SHORT_NS = 2_000_000_000, 500_000_000


def ignore(_step: str) -> None:
    """Tell nobody."""


def run(
    experiment: Described,
    out: Place | None = None,
    *,
    set: Sequence[str] = (),
    resume: bool = False,
) -> Experiment:
    """Make all runs of an experiment on this machine, as root, and read them: `tailtap run`.

    `out` is the folder for the results; by default the experiment's name and the time of day. `set`
    replaces values, such as ``traffic.rate=20 kpkt/s``. With `resume` the missing runs are made. A
    run that failed is among the runs, and says why in `excluded`. Raises `InputError` for a mistake
    in the experiment, `MachineError` where this machine cannot make it.
    """
    from tailtap.analysis.runs.reader import read_runs
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.campaign import Campaign, default_folder
    from tailtap.measure.runner import run_experiment
    from tailtap.results.current import kept_current

    with _file(experiment) as path:
        checked = read_experiment(path, set)
        folder = default_folder(checked.name) if out is None else Path(out)
        with kept_current(folder):
            run_experiment(checked, path, Campaign(folder, resume))
    return read_runs(folder)


def verdict(
    runs: Places,
    require: str | Sequence[str] = (),
    *,
    select: Sequence[str] = (),
    confidence: float = 0.95,
    undisturbed: bool = False,
    junit: Place | None = None,
    allow_not_shown: bool = False,
    progress: Progress = ignore,
) -> VerdictRecord:
    """Say whether runs meet requirements: `tailtap verdict`.

    `runs` are experiment folders, run folders or evaluations; `require` is what must hold, such as
    ``p99.9 < 1 ms`` or ``profile urllc-5g``, and by default what their experiment files say, which
    may have claims, too. `undisturbed` latencies are those without pauses from outside. A file
    `junit` gets JUnit XML, in which what is not shown is skipped where that is allowed.
    """
    from tailtap.analysis.claims.judge import claims_at, with_claims
    from tailtap.analysis.verdict.requirement import parse_requirements
    from tailtap.analysis.verdict.runs import judge_runs

    required = parse_requirements([require] if isinstance(require, str) else require)
    claims = [] if required or select else claims_at(_paths(runs))
    found = judge_runs(
        _paths(runs), required, runs=select, confidence=confidence, undisturbed=undisturbed,
        claimed=bool(claims), progress=progress,
    )  # fmt: skip
    if junit is not None:
        from tailtap.analysis.verdict.junit import write_junit

        write_junit(found, Path(junit), allow_not_shown=allow_not_shown)
    return with_claims(found, claims)


def compare(
    sources: Places | Mapping[str, Places], percentile: float | None = None
) -> CompareRecord:
    """Rank configurations by their tail: `tailtap compare`.

    `sources` are folders, or names with their folders: those of one name are repeats of one
    configuration where nothing was varied. `percentile` is from 0 to 1, 1 being the maximum.
    """
    from tailtap.analysis.compare import compare_runs

    return compare_runs(_sources(sources), percentile)


def judge_change(
    base: Places, new: Places, *, worse_than: float, percentile: float | None = None
) -> GateRecord:
    """Say whether what is new is worse than the base: `tailtap compare --worse-than`.

    `worse_than` is the share of the latency that may be added. The `answer` is better, no worse,
    worse or not shown.
    """
    from tailtap.analysis.compare.gate import judge_change as judge

    sides = {"base": base, "new": new}
    alone = all(len(_paths(places)) == 1 for places in sides.values())
    sources = [("", _paths(places)[0]) for places in sides.values()] if alone else _sources(sides)
    return judge(sources, worse_than, percentile)


def explain(runs: Places, *, late: str = "p99.9") -> list[CausesRecord]:
    """Say why packets of traced runs were late: `tailtap explain`.

    `late` is a percentile, or a latency such as ``100 us``. The causes are stored in the run
    folders, too. Raises the first error that a run gives.
    """
    from tailtap.analysis.causes.many import explain_many

    found = []
    traced = _paths(runs)
    for folder, told in explain_many(traced, late=late, undisturbed=kept_undisturbed):
        if isinstance(told, TailtapError):
            raise told
        keep_causes([folder])
        found.append(told.record)
    return found


def search(
    experiment: Described,
    out: Place | None = None,
    *,
    low: int,
    high: int,
    loss: float | Sequence[float] = 0.0,
    method: str = "mlr",
    precision: float = 0.02,
    trial_ns: int = LONG_NS,
    trials: int = 3,
    latency: bool = True,
    set: Sequence[str] = (),
    resume: bool = False,
) -> SearchedRecord:
    """Find the highest rate with at most so much loss, as root: `tailtap search`.

    `low` and `high` are rates in pkt/s between which it is looked for, for each combination of what
    varies. With `latency`, that is measured at the rates found.
    """
    from tailtap.experiment.reading import read_experiment
    from tailtap.measure.campaign import Campaign, default_folder
    from tailtap.measure.search import SHARES, Plan, search_experiment
    from tailtap.measure.search.methods import METHODS, settings_of
    from tailtap.results.current import kept_current

    if method not in METHODS:
        raise InputError(f"there is no method {method!r}: known: {', '.join(METHODS)}")
    losses = (loss,) if isinstance(loss, int | float) else tuple(loss)
    settings = settings_of(
        sorted(losses), low, high, precision, method=method, trial_ns=trial_ns, trials=trials,
        short_ns=min(SHORT_NS, trial_ns),
    )  # fmt: skip
    with _file(experiment) as path:
        checked = read_experiment(path, set)
        folder = default_folder(f"{checked.name}-search") if out is None else Path(out)
        plan = Plan(checked, path, settings, shares=SHARES if latency else ())
        with kept_current(folder):
            return search_experiment(plan, Campaign(folder, resume)).printed()


def publish(
    folder: Place,
    out: Place | None = None,
    *,
    captures: str = "refer",
    allow: Sequence[str] = (),
    hide: Sequence[str] = (),
    anonymous: bool = False,
    licence: str | None = None,
    authors: Sequence[str] = (),
    check: bool = False,
    progress: Progress = ignore,
) -> PublishRecord:
    """Make a site of an experiment that others can read, check and repeat: `tailtap publish`.

    It is made at `out`, by default `folder`/site. `captures` is ``embed``, ``refer``, or
    ``refer=URL``; `allow` are kinds of what identifies that is not replaced; an author is ``NAME
    <ORCID> (AFFILIATION)``. With `check` nothing is written.
    """
    from tailtap.show.publish import Options, parse_author, parse_licence, where_captures_are
    from tailtap.show.publish import publish as make
    from tailtap.show.publish.redaction import allowed_kinds

    embed, url = where_captures_are(captures)
    options = Options(
        allowed=allowed_kinds(allow),
        anonymous=anonymous,
        hidden=hide,
        embed=embed,
        url=url,
        licence=None if licence is None else parse_licence(licence),
        authors=[parse_author(text) for text in authors],
    )
    place = None if out is None else Path(out)
    return make(Path(folder), place, options, check=check, progress=progress)


def reproduce(
    site: Place,
    level: Level = "figures",
    out: Place | None = None,
    *,
    captures: Place | None = None,
    fetch: int = 0,
    set: Sequence[str] = (),
    allow_commands: bool = False,
) -> ReproductionRecord:
    """Repeat what was published, as far as `level` says: `tailtap reproduce`.

    `site` is a folder or an address. `captures` is a folder with those that the site does not have;
    up to `fetch` bytes of others are fetched. For ``small`` and ``full`` runs are made on this
    machine, as root, in the folder `out`; `set` replaces values of the experiment.
    """
    from tailtap.host.facts.needs import require_root
    from tailtap.show.reproduce import MEASURING, Asked
    from tailtap.show.reproduce import reproduce as repeat
    from tailtap.show.reproduce.fetching import at

    def measure(folder: Path) -> Path:
        place = None if out is None else Path(out)
        return measure_again(level, folder, overrides=set, out=place, allow_commands=allow_commands)

    if level in MEASURING:
        require_root()
    archive = None if captures is None else Path(captures)
    asked = Asked(level, archive, fetch)
    with at(str(site)) as folder:
        return repeat(folder, str(site), asked, measure if level in MEASURING else None)


def measure_again(
    level: Level,
    site: Path,
    *,
    overrides: Sequence[str] = (),
    out: Path | None = None,
    testbed: Path | None = None,
    allow_commands: bool = False,
    connect: Callable[[CheckedExperiment], tuple[Stations | None, Boots | None]] | None = None,
    around: Callable[[Path], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    listeners: Sequence[Listener] = (),
) -> Path:
    """Make the runs of a site's experiment, as it is or at its smallest scale; their folder.

    `connect` gives the stations of a `testbed`; runs are made within `around`, which is told their
    folder. Raises `MachineError` where the experiment cannot be had on this machine, `InputError`
    where `overrides` are wrong, or where it runs commands or takes what is this machine's and that
    is not allowed.
    """
    from tailtap.experiment.reading import demands_of, read_experiment, smallest
    from tailtap.measure.campaign import Campaign, default_folder
    from tailtap.measure.runner import run_experiment
    from tailtap.results.current import kept_current

    file, on_testbed = site / "experiment.yaml", testbed is not None
    try:
        chosen = list(overrides)
        if level == "small" and not any(one.startswith("scale=") for one in chosen):
            chosen = smallest(file, chosen, on_testbed=on_testbed)
        checked = read_experiment(file, chosen, on_testbed=on_testbed, named=False)
    except InputError as error:
        if overrides:
            raise
        raise MachineError(str(error)) from error
    own = {one.partition("=")[0].strip() for one in overrides}
    demands = [one for one in demands_of(checked) if one.partition(":")[0] not in own]
    if demands and not allow_commands:
        raise InputError(
            "this experiment of others runs commands, or takes files and devices of this machine, "
            f"as root ({'; '.join(demands[:8])}): read it, then give --allow-commands"
        )
    stations, boots = (None, None) if connect is None or not on_testbed else connect(checked)
    folder = out or default_folder(f"{checked.name}-reproduced")
    with around(folder), kept_current(folder):
        campaign = Campaign(
            folder, listeners=listeners, stations=stations, testbed=testbed, boots=boots
        )
        run_experiment(checked, file, campaign)
    return folder


def kept_undisturbed(run: Run, trace: Trace | None) -> UndisturbedRecord | None:
    """The latencies of a run without pauses from outside; they are stored in its folder.

    `trace` is its trace, where that was read already.

    None where nothing tells of pauses, and where the stamps are gone. Raises `InputError` when the
    run's files cannot be read.
    """
    from tailtap.analysis.causes.late import StampsGone
    from tailtap.analysis.undisturbed import keep_undisturbed

    try:
        found = keep_undisturbed(run, trace)
    except StampsGone:  # what explains a run needs less than all of its packets
        return None
    return None if found is None else found.record


def keep_causes(folders: Iterable[Path]) -> None:
    """Put runs that were explained into the databases of their experiments, if these have one."""
    runs = {folder.absolute().parent for folder in folders}
    homes = [one.parent for one in runs if one.name == "runs"]
    for home in (one for one in homes if (one / "results.duckdb").is_file()):
        from tailtap.results.database import refresh

        refresh(home)


def _paths(places: Places) -> list[Path]:
    return [Path(one) for one in ([places] if isinstance(places, str | Path) else places)]


def _sources(sources: Places | Mapping[str, Places]) -> list[tuple[str, Path]]:
    if isinstance(sources, Mapping):
        return [(name, path) for name, places in sources.items() for path in _paths(places)]
    return [("", path) for path in _paths(sources)]


@contextlib.contextmanager
def _file(experiment: Described) -> Iterator[Path]:
    """The file of an experiment."""
    if not isinstance(experiment, Mapping):
        yield Path(experiment)
        return
    import yaml

    from tailtap.base.files import write_text

    with TemporaryDirectory() as folder:
        path = Path(folder, "experiment.yaml")
        write_text(path, yaml.safe_dump(dict(experiment), sort_keys=False))
        yield path
