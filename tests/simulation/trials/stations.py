"""Campaigns whose stations fail, whose disk is full, or that are killed at any step."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy.typing as npt
import pytest
from children import dying
from fake_station import ANSWERS, REQUESTS, FakeStation, failed, gone

from tailtap.analysis.runs.folder import RunFolder, locked
from tailtap.analysis.runs.reader import read_runs
from tailtap.base.errors import InputError, Interrupted, NotWritten
from tailtap.experiment.plan import make_plan
from tailtap.experiment.reading import read_experiment
from tailtap.lab.topology.graphs import FORWARD
from tailtap.measure import run as run_module
from tailtap.measure.campaign import Campaign, Listener
from tailtap.measure.run import everywhere
from tailtap.measure.runner import run_experiment
from tests.simulation.draw import Draw
from tests.simulation.folders import Made, everything
from tests.simulation.traffic import Packets, packets
from tests.simulation.trial import Trial
from tests.simulation.trials.folders import as_true

STEPS = ("open", "replace", "rename", "unlink", "mkdir", "rmdir", "link", "fsync")
"""Calls of the system by which files come, go, and reach the disk."""
GROWING = ("open", "mkdir", "fsync")
"""Those that a full disk refuses."""
QUICK: dict[str, Any] = {"SETTLE_SECONDS": 0.0, "PROBE_PAUSE_SECONDS": 0.0, "OVERTIME": 1.0,
         "OVERTIME_SECONDS": 0.2, "DRAIN_SECONDS": 0.0}  # fmt: skip
NONSENSE: Sequence[tuple[str, str, Any]] = (
    ("dut", "prepare", {}),
    ("dut", "prepare", 5),
    ("dut", "prepare", {**ANSWERS["dut", "prepare"], "patience": "long"}),
    ("dut", "read", {}),
    ("dut", "read", {**ANSWERS["dut", "read"], "facts": {"softnet": 5}}),
    ("dut", "read", {**ANSWERS["dut", "read"], "warnings": ["a"]}),
    ("dut", "stop", {}),
    ("generator", "result", {}),
    ("generator", "result", {"flows": {}}),
    ("generator", "result", {"flows": {FORWARD: {"sent": "many"}}}),
    ("timestamper", "count", {"flows": {FORWARD: 5}}),
    ("timestamper", "count", {"flows": {}}),
    ("timestamper", "stop", {"cpus": "0", "flows": {FORWARD: {}}}),
    ("timestamper", "stop", {"cpus": [], "flows": {}}),
)
"""What a far station may say in place of an answer."""
BUGS: Sequence[tuple[Exception, str]] = (
    (
        ValueError("zip() argument 3\nis longer"),
        "a bug of tailtap: ValueError: zip() argument 3 is",
    ),
    (RecursionError("too deep"), "a bug of tailtap: RecursionError: too deep ("),
    (FileNotFoundError(2, "No such file or directory", "/sys/x"), "a bug of tailtap: FileNot"),
    (BrokenPipeError(32, "Broken pipe"), "a bug of tailtap: BrokenPipeError: "),
    (MemoryError(), "this machine has no memory left for it: "),
    (OSError(12, "Cannot allocate memory"), "Cannot allocate memory: "),
)
"""What nobody foresaw, and what is said of it."""


class Noted(Listener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.lines: list[str] = []

    def noted(self, sentence: str) -> None:
        self.lines.append(sentence)


class World:
    """An experiment, and what its packets do in each of its runs."""

    def __init__(self, draw: Draw, folder: Path) -> None:
        self._draw, self.out, self.source = draw, folder / "out", folder / "e.yaml"
        both = ", bidirectional: true, reverse_cpu: 2" * draw.has("both directions", 0.2)
        repeat = draw.between("repeats", 1, 2)
        varied = "[2 kpkt/s, 4 kpkt/s]" if draw.has("varied", 0.5) else "[2 kpkt/s]"
        self.source.write_text(
            f"name: paper\ntraffic: {{duration: 5 ms, warm_up: 0 s{both}}}\nrepeat: {repeat}\n"
            f"vary: {{traffic.rate: {varied}}}\n"
        )
        self.checked = read_experiment(self.source)
        self.plan = make_plan(self.checked)
        self.late = draw.has("a late generator", 0.2)

    def packets(self, run: str) -> Packets:
        """What passes in the run of a name, whenever it is made; some of it arrives."""
        for attempt in count():
            number = 1_000 * attempt + int(run[:3])
            draw = Draw(number * 10**9 + self._draw.seed, self._draw.without, self._draw.scale)
            if (made := packets(draw)).arrived.size:
                return made
        raise AssertionError

    def station(self) -> FakeStation:
        def times(run: str) -> tuple[npt.ArrayLike, npt.ArrayLike]:
            made = self.packets(run)
            return made.sent, made.left

        return FakeStation(times=times, sent={"achieved_rate": 1.0} if self.late else {})

    def run(self, station: FakeStation, out: Path) -> list[str]:
        """Begin or resume the campaign; what nobody could resume holds no measurement.

        What a person is told.
        """
        resume = (out / "experiment.yaml").exists()
        if not resume and out.exists():
            assert not stamps(out)
            shutil.rmtree(out)
        told = Noted()
        campaign = Campaign(out, resume, [told], everywhere(station))
        run_experiment(self.checked, self.source, campaign)
        return told.lines

    def made(self, folder: RunFolder) -> Made:
        record = json.loads(folder.record.read_text())
        return Made(
            folder.path, record["number"], record["repeat"], record["variables"], "done",
            not self.late, (), self.packets(folder.path.name),
        )  # fmt: skip


def stamps(out: Path) -> Counter[bytes]:
    """What was measured, wherever it lies."""
    return Counter(data for path in out.rglob("*.stamps") if len(data := path.read_bytes()) > 64)


def run(draw: Draw, folder: Path) -> None:
    """Interrupt a campaign some times, have it go on, and compare with the truth."""
    world = World(draw, folder)
    with mock.patch.multiple(run_module, **QUICK):
        for _ in range(draw.between("interruptions", 0, 2)):
            before = stamps(world.out)
            befallen(draw, world)
            assert before <= stamps(world.out)
            consistent(world)
        missing, again = {*unfinished(world)}, set[str]()
        if draw.has("a power cut", 0.4):
            again = power_cut(draw, world)
            missing |= again
        before = stamps(world.out)
        station = world.station()
        told = world.run(station, world.out)
        assert again <= {line.partition(":")[0] for line in told if "measuring it again" in line}
        assert before <= stamps(world.out)
        assert station.opened == station.closed == len(missing)
        slugs = [flow.slug for one in world.plan for flow in one.group]
        assert sorted(path.name for path in (world.out / "runs").iterdir()) == sorted(slugs)
        found = read_runs(world.out).runs
        as_true([world.made(RunFolder(world.out / "runs" / slug)) for slug in slugs], found)
        assert not list((world.out / "runs").rglob(".tailtap-*"))
        whole = everything(world.out)
        world.run(station, world.out)
        with locked(world.out), pytest.raises(InputError, match="another tailtap is writing"):
            world.run(station, world.out)
        assert everything(world.out) == whole
        if draw.has("an uncut one beside", 0.3):
            world.run(world.station(), folder / "uncut")
            assert results(world.out) == results(folder / "uncut")


def power_cut(draw: Draw, world: World) -> set[str]:
    """Empty a file of a run that was done; the measurement that has to be made again."""
    done = [flow for one in world.plan for flow in one.group
            if one.slug not in unfinished(world)]  # fmt: skip
    if not done:
        return set()
    flow = draw.choice("whose power is cut", done)
    folder = world.out / "runs" / flow.slug
    names = ["run.json", "generator.json", "egress.stamps", "evaluation/evaluation.json",
             "evaluation/worst.parquet"]  # fmt: skip
    (folder / draw.choice("emptied", names)).write_bytes(b"")
    return {one.slug for one in world.plan if flow in one.group}


def results(out: Path) -> dict[str, Any]:
    """All that was found out by runs: records without the times of day, evaluations as bytes."""
    found: dict[str, Any] = {}
    for path in sorted((out / "runs").rglob("*")):
        name = str(path.relative_to(out))
        if path.name == "run.json":
            record = json.loads(path.read_text())
            found[name] = {key: value for key, value in record.items()
                           if key not in ("started", "finished")}  # fmt: skip
        elif path.name == "evaluation.json":
            evaluation = json.loads(path.read_text())
            for side in evaluation["inputs"].values():
                side["path"] = Path(side["path"]).name
            found[name] = {**evaluation, "made": ""}
        elif path.is_file() and path.suffix != ".parquet":  # which says when it was made
            found[name] = path.read_bytes()
    return found


def unfinished(world: World) -> list[str]:
    """The measurements that are yet to be made."""
    done = {path.name for path in world.out.glob("runs/*") if RunFolder(path).done}
    return [one.slug for one in world.plan if not {flow.slug for flow in one.group} <= done]


def consistent(world: World) -> None:
    """Whatever befell it: records are whole or not there, and what is done is true."""
    if not (world.out / "runs").is_dir():
        return
    folders = [RunFolder(path.parent) for path in world.out.glob("runs/*/run.json")]
    done = [one for one in folders if json.loads(one.record.read_text())["status"] == "done"]
    assert all(one.whole for one in done)
    as_true([world.made(one) for one in done], read_runs(world.out).runs)


def befallen(draw: Draw, world: World) -> None:
    """One attempt at the campaign, to which something happens."""
    station = world.station()
    what = draw.choice("what befalls", ("kill", "full disk", "Ctrl-C", "role", "event", "nonsense",
                                        "hang", "bug", "full once"))  # fmt: skip
    at = draw.magnitude("at", 1, 300)
    victim = draw.between("victim", 1, 2)
    role, request = draw.choice("asked", REQUESTS)
    match what:
        case "kill":
            with dying(at, *((os, name) for name in STEPS)):
                world.run(station, world.out)
        case "full disk":
            with full_from(at), contextlib.suppress(NotWritten):
                world.run(station, world.out)
        case "Ctrl-C":
            station.meddle = raising(KeyboardInterrupt(), at // 4)
            with contextlib.suppress(Interrupted):
                world.run(station, world.out)
            assert station.opened - station.closed <= (station.asked[-1:] == [("site", "open")])
        case "role":
            error = draw.choice("error", (gone(role), InputError("its plan makes no sense")))
            one_lost(world, station, victim, str(error), fails={(role, request): error})
            opened = (role, request) != ("site", "open") or station.opened < victim
            assert station.closed == station.opened - (not opened)
        case "bug":
            bug, said = draw.choice("bug", BUGS)
            one_lost(world, station, victim, said, fails={(role, request): bug})
        case "full once":
            missing = unfinished(world)
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            try:
                one_lost(world, station, victim, "", fails={("dut", "observe"): full})
            except NotWritten:
                assert victim <= len(missing)
            else:
                assert victim > len(missing)
            assert station.opened == station.closed == min(victim, len(missing))
        case "event":
            role = draw.choice("who fails", ("dut", "timestamper"))
            event = failed("it was ended by SIGSEGV", link=draw.has("a link that vanished", 0.3))
            one_lost(world, station, victim, "SIGSEGV", happens={role: event}, endless=True)
        case "nonsense":
            role, request, answer = draw.choice("strange", NONSENSE)
            said = f"the {role} answers what makes no sense"
            one_lost(world, station, victim, said, nonsense={(role, request): answer})
        case "hang":
            one_lost(world, station, victim, "does not come to an end", endless=True)


def one_lost(world: World, station: FakeStation, victim: int, said: str, **befalls: object) -> None:
    """What befalls one measurement costs this one alone, and its record says why."""
    missing = unfinished(world)
    usual = {name: getattr(station, name) for name in befalls}

    def meddle(role: str, request: str) -> None:
        if (role, request) == ("site", "open"):
            for name, value in (befalls if station.opened == victim else usual).items():
                setattr(station, name, value)

    station.meddle = meddle
    world.run(station, world.out)
    failed_now = missing[victim - 1 : victim]
    assert unfinished(world) == failed_now
    for slug in failed_now:
        record = json.loads((world.out / "runs" / slug / "run.json").read_text())
        assert record["status"] == "failed" and said in record["error"], record["error"]
        assert "\n" not in record["error"]
        bug = world.out / "runs" / slug / "bug.txt"
        assert bug.exists() == ("bug of tailtap" in said)
        assert not bug.exists() or (
            bug.read_text().startswith("Traceback") and str(bug) in record["error"]
        )


def raising(error: BaseException, at: int) -> Any:
    """Raises an error when roles have been asked so often."""
    asked = count()

    def meddle(role: str, request: str) -> None:
        if next(asked) == at:
            raise error

    return meddle


@contextlib.contextmanager
def full_from(at: int) -> Iterator[None]:
    """From call `at` on nothing more gets onto the disk."""
    taken = count()

    def refusing(name: str) -> Any:
        call = getattr(os, name)

        def step(*arguments: Any, **options: Any) -> Any:
            reads = name == "open" and not arguments[1] & os.O_CREAT
            if not reads and next(taken) >= at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return step

    with mock.patch.multiple(os, **{name: refusing(name) for name in GROWING}):
        yield


TRIAL = Trial("stations", run, every=5)
