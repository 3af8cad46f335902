"""`tailtap run`: the runs of an experiment, one after the other, into run folders."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict, replace

from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder, hop_captures
from tailtap.base.document import load
from tailtap.base.errors import Occupied, TailtapError
from tailtap.base.files import remove, write_json
from tailtap.experiment.plan import PlannedRun, make_plan, plan_record
from tailtap.experiment.reading import CheckedExperiment
from tailtap.host.facts.needs import require_root
from tailtap.measure.beside import Beside, other_measurements
from tailtap.measure.boots import Boots, asks, grouped, wanted_of
from tailtap.measure.campaign import Campaign, experiment_text, first_difference, now
from tailtap.measure.flow import FlowRun, why_failed
from tailtap.measure.preconditions import (
    require_events,
    require_here,
    require_room_of,
)
from tailtap.measure.quality import Measured, Sent, external_rate, lost_heavily, warnings_of
from tailtap.measure.roles import Stations
from tailtap.measure.roles.here import Here
from tailtap.measure.run import (
    DUT,
    Guard,
    StillWarmingUp,
    Tick,
    everywhere,
    measure,
)
from tailtap.records.datapath import Generator, GeneratorRecord, Tap
from tailtap.records.record import Notice, Open, as_json, opened
from tailtap.records.run import Instrument, RunRecord, Status
from tailtap.records.warnings import is_valid

WRITTEN = (
    "the taps wrote every {} while packets were sent, so that the run could be watched: each time "
    "woke up a CPU that is not the device's"
)


def run_experiment(checked: CheckedExperiment, source: Path, campaign: Campaign) -> list[RunFolder]:
    """Make all runs of the experiment read from `source`.

    A machine is asked first whether it can have the roles. Where runs ask for boots, those of one
    boot follow each other. Returns the run folders in the order of the plan, failed ones included.
    Runs that are done and whole already stay as they are. Raises what `Campaign.opened` raises,
    `InputError` for a folder of another experiment, and `MachineError` when nothing can run here.
    """
    plan, folder = make_plan(checked), campaign.folder
    if campaign.stations is None:
        require_root()
        require_here(plan)
        require_events(checked)
    require_room_of(campaign.out, [run for run in plan if not _is_whole(folder, run)])

    def kept() -> str:
        done = sum(_is_whole(folder, run) for run in plan)
        again = f"tailtap run {source} --out {campaign.out} --resume"
        return f"{done} of {len(plan)} runs are kept; `{again}` makes the rest"

    with campaign.opened():
        campaign.prepare(
            "the experiment",
            {folder.experiment.name: experiment_text(checked, source)},
            lambda: _require_same(campaign, checked, source),
        )
        write_json(folder.plan, as_json(plan_record(checked.name, plan)), below=campaign.out)
        with campaign.ending(kept):
            _make_all(plan, campaign)
    return [folder.run(one.slug) for run in plan for one in run.group]


def _make_all(plan: Sequence[PlannedRun], campaign: Campaign) -> None:
    folder = campaign.folder
    boots = campaign.boots if asks(plan) else None
    pending = [run for run in plan if not _is_whole(folder, run)]
    if boots is not None:
        pending = grouped(pending)
    listeners = campaign.listeners
    ticking = [one.tick for one in listeners if one.wants_ticks]

    def tick(seconds: float) -> None:
        for one in ticking:
            one(seconds)

    for run in pending:
        if why := folder.run(run.slug).damage:
            campaign.note(f"{run.slug}: {why}: measuring it again")
        for flow in run.group:
            if folder.run(flow.slug).measured:
                campaign.note(f"{flow.slug}: what was measured before goes to {folder.earlier}")
    for sentence in Beside.look().sentences if campaign.stations is None else ():
        campaign.note(f"note: {sentence}")
    with contextlib.ExitStack() as stack:
        for one in listeners:
            stack.callback(one.ended)
            one.begun(pending, sum(len(run.group) for run in plan))
        for run in pending:
            for one in listeners:
                one.started(run)
            record = make_run(
                run, folder.run(run.slug), tick if ticking else None, stations=campaign.stations,
                boots=boots, flush=campaign.flush,
            )  # fmt: skip
            for one in listeners:
                one.finished(run, record)


def _is_whole(folder: ExperimentFolder, run: PlannedRun) -> bool:
    return all(folder.run(one.slug).whole for one in run.group)


def _require_same(campaign: Campaign, checked: CheckedExperiment, source: Path) -> None:
    """Raises `NothingBegun` without an experiment, and `Occupied` where it is another one."""
    begun = campaign.begun(campaign.folder.experiment.name)
    difference = first_difference(load(begun).data, checked.document.data)
    if difference is not None:
        raise Occupied(
            f"this differs from {source} in {difference}",
            place=str(begun),
            remedy=f"resume with {begun}",
        )


def make_run(
    run: PlannedRun,
    folder: RunFolder,
    tick: Tick | None = None,
    guard: Guard | None = None,
    *,
    keep_stamps: bool = True,
    stations: Stations | None = None,
    boots: Boots | None = None,
    boot_each_repeat: bool = True,
    flush: str | None = None,
) -> RunRecord:
    """Make one run and evaluate it; its record, with the reason when it failed.

    Each flow is evaluated as a run of its own: those of `together` go into folders beside this one.
    When one of them fails, all do. A run that the `guard` ended is done all the same; its
    ``generator`` says `interrupted`. With `flush` taps write so often. With `keep_stamps` false
    its stamps are removed when it has ended. With `boot_each_repeat` false one boot is
    enough for all that want the same. Without a trace, `keep` of the experiment may also say that
    stamps do not stay.
    """
    stay = keep_stamps and (run.experiment.keeps_stamps or run.experiment.trace != "none")
    here = stations is None
    stations = stations or everywhere(Here())
    flows = [_Flow(beside(folder, one), _first_record(one), one) for one in run.group]
    for flow in flows:
        if keep_stamps:
            flow.folder.put_aside()
        flow.begin()

    def end(status: Status, error: str | None = None) -> None:
        # The first one last: when it is done, so are the others.
        for flow in reversed(flows):
            for stamps in flow.folder.stamps if not stay else ():
                remove(stamps, below=flow.folder.top)
            flow.end(status, error)

    try:
        if boots is not None:
            booted = boots.bring(wanted_of(run.experiment), (run.repeat if boot_each_repeat else 1))
            for flow in flows:
                flow.record.boot = booted
        # For each run: tuning may have changed since the last one.
        surroundings = stations[DUT].environment()
        for flow in flows:
            flow.record.environment = surroundings
            flow.store()
        folders = {flow.run.flow: flow.folder for flow in flows}
        before = Beside.look()
        measured = measure(run.experiment, folders, tick, guard, stations=stations, flush=flush)
        others = other_measurements(before, Beside.look()) if here else []
        if flush is not None:
            others.append(Notice("written-meanwhile", WRITTEN.format(flush)))
        for flow in flows:
            flow.keep(measured)
            flow.record.warnings += others
        names = [name for brought in measured.brought.values() for name in brought.files]
        for flow in flows[1:]:
            for name in names:
                (flow.folder.path / name).hardlink_to(folder.path / name)
        for flow in flows:
            flow.evaluate(measured.sent[flow.run.flow])
        # The load is that of all flows.
        valid = all(is_valid(flow.record.warnings) for flow in flows)
        for flow in flows:
            flow.record.valid = valid
    except Exception as error:
        # Whatever happened in it, a bug of ours included, costs this run and no other one.
        why = why_failed(error, folder)
        if isinstance(error, StillWarmingUp):
            for flow in flows:
                flow.record.generator = _of_any(error.sent[flow.run.flow])
        end("failed", why)
        for station in {id(one): one for one in stations.values()}.values():
            with contextlib.suppress(TailtapError):  # who cannot be reached: the next run says why
                station.clean()
    except KeyboardInterrupt:
        end("interrupted", "stopped by the user")
        raise
    else:
        end("done")
    return flows[0].record


def beside(folder: RunFolder, run: PlannedRun) -> RunFolder:
    """The folder of a run that is stored in the same place as `folder`."""
    return RunFolder(folder.path.with_name(run.slug), folder.top)


@dataclass
class _Flow(FlowRun):
    run: PlannedRun

    def keep(self, measured: Measured) -> None:
        sent = measured.sent[self.run.flow]
        stamped = sent.stamped
        taps = Instrument(
            facts=["taps"], files=stamped.files, cpus=sent.cpus, points=stamped.points
        )
        brought = {
            name: Instrument(facts=one.facts, files=one.files)
            for name, one in measured.brought.items()
        }
        self.record = replace(
            self.record,
            **asdict(measured.found),
            generator=_of_any(sent.generator),
            taps={name: opened(name, tap.whole, Tap) for name, tap in stamped.taps.items()},
            instruments={"taps": taps, **brought},
            warnings=warnings_of(self.run.experiment, measured, self.run.flow),
        )

    def evaluate(self, sent: Sent) -> None:
        experiment = self.run.experiment
        evaluation, settings = self.evaluated()
        hops = hop_captures(self.record, self.folder.path)
        if hops:
            from tailtap.analysis.evaluation.hops import evaluate_hops  # `--check` needs no arrays

            evaluation = evaluate_hops(evaluation, hops, settings)
        if self.record.events:
            from tailtap.analysis.evaluation.hops import around

            self.record.events, self.record.beside_events = around(
                self.record.events,
                self.folder.ingress,
                self.folder.egress,
                trim_ns=settings.trim_ns,
                window_ns=settings.window_ns,
                clocks=settings.clocks,
            )
        lost = sum(one.around.lost for one in self.record.events if one.around is not None)
        evaluation.write(self.folder.evaluation, below=self.folder.top)
        self.record.warnings += [
            *external_rate(
                experiment.traffic_of(self.run.flow),
                evaluation.inputs.ingress,
                evaluation.counts.ingress if experiment.answers else None,
            ),
            *lost_heavily(
                experiment,
                sent,
                evaluation.counts,
                evaluation.loss_patterns,
                self.record.softnet,
                lost,
            ),
        ]


def _of_any(told: Open[GeneratorRecord]) -> Open[Generator]:
    return opened("the generator", told.whole, Generator)


def _first_record(run: PlannedRun) -> RunRecord:
    row, graph = run.row(), run.experiment.graph()
    return RunRecord(
        number=row.number,
        slug=row.slug,
        repeat=row.repeat,
        variables=row.variables,
        parameters=row.parameters,
        name=run.experiment.name,
        status="running",
        started=now(),
        warnings=[],
        traits=run.experiment.traits,
        nodes=[node.record() for node in graph.nodes],
        links=[link.record() for link in graph.links],
        flows=[flow.record() for flow in graph.flows],
    )
