"""One run and the runner on a station without a machine: every way in which a role can fail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_station import ANSWERS, LIFETIME, PACKETS, REQUESTS, FakeStation, gone

from tailtap.analysis.runs.folder import RunFolder
from tailtap.base.errors import MachineError
from tailtap.cli.progress import listener
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.lab.topology.graphs import FORWARD
from tailtap.measure import run as run_module
from tailtap.measure.campaign import Campaign
from tailtap.measure.quality import Measured
from tailtap.measure.run import everywhere, measure
from tailtap.measure.runner import run_experiment
from tailtap.records.machine import Station
from tailtap.records.record import as_json, parsed

TEXT = """
name: paper
traffic: {rate: 10 kpkt/s, duration: 100 ms, warm_up: 0 s}
repeat: 2
"""


def runs(
    tmp_path: Path, station: FakeStation, text: str = TEXT, *, quiet: bool = True
) -> list[dict[str, Any]]:
    """The records of an experiment on `station`."""
    source = tmp_path / "e.yaml"
    source.write_text(text)
    campaign = Campaign(
        tmp_path / "out", listeners=[listener(quiet=quiet)], stations=everywhere(station)
    )
    made = run_experiment(read_experiment(source), source, campaign)
    return [json.loads(folder.record.read_text()) for folder in made]


def test_a_run_asks_each_role_in_order_and_stores_what_it_says(tmp_path: Path) -> None:
    station = FakeStation()
    records = runs(tmp_path, station)
    first = list(dict.fromkeys(station.asked))
    assert first == list(REQUESTS)
    assert (station.opened, station.closed) == (2, 2)
    for record in records:
        assert (record["status"], record["error"], record["valid"]) == ("done", None, True)
        assert record["platform"] == {"kernel": {"release": "of paper"}}
        assert record["environment"]["kernel"]["release"] == "of paper"
        assert record["stations"] == {}
        assert record["forwarder"] == {"version": "1", "cpu_ns": None}
        assert record["counters"] == {"lifetime": as_json(LIFETIME)}
        assert record["instruments"] == {
            "taps": {
                "facts": ["taps"],
                "files": ["egress.stamps", "ingress.stamps"],
                "cpus": "0",
                "points": [
                    {"name": "ingress", "port": "tap:tt-a0", "file": "ingress.stamps",
                     "before": "dut", "received": False},
                    {"name": "egress", "port": "tap:tt-b0", "file": "egress.stamps",
                     "before": None, "received": False},
                ],
            },
            "kernel-counters": {"facts": ["elapsed_ns", "softnet"], "files": []},
        }  # fmt: skip
        assert record["warnings"] == []
        folder = tmp_path / "out/runs" / record["slug"]
        evaluation = json.loads((folder / "evaluation/evaluation.json").read_text())
        assert evaluation["counts"]["matched"] == PACKETS
        assert evaluation["latency_ns"]["max"] == 1000 + PACKETS - 1
        assert (folder / "generator.json").is_file()


def test_a_vanished_link_explains_what_else_fails(tmp_path: Path) -> None:
    """The device is asked what is wrong before the first error is believed."""
    station = FakeStation(fails={("generator", "result"): gone("the generator")})

    def meddle(role: str, request: str) -> None:
        if (role, request) == ("dut", "check") and ("generator", "result") in station.asked:
            raise MachineError("interface tt-gen of namespace tt-gen vanished during the run")

    station.meddle = meddle
    with pytest.raises(MachineError, match="tt-gen vanished"):
        _measured(tmp_path, station)
    assert station.closed == 1


@pytest.mark.parametrize(
    ("overdue", "how", "traffic"),
    [
        (60.0, {"endless": True}, {}),
        (
            0.0,
            {"slow": True},
            {"generator": "external", "external": {"command": "send", "begin": "100 ms"}},
        ),
    ],
)
def test_a_generator_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overdue: float, how: Any, traffic: Any
) -> None:
    """Those of others are waited for all the same, however long they send."""
    monkeypatch.setattr(run_module, "OVERDUE_SECONDS", overdue)
    monkeypatch.setattr(run_module, "OVERTIME_SECONDS", 0.2)
    station = FakeStation(**how)
    with pytest.raises(MachineError, match="the generator does not come to an end"):
        measure(_experiment(**traffic), _folders(tmp_path), None, stations=everywhere(station))
    assert station.closed == 1


def test_a_generator_that_falls_behind_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before it counts as hanging; what it sent until then is a result."""
    monkeypatch.setattr(run_module, "OVERDUE_SECONDS", 0.1)
    station = FakeStation(slow=True)
    measured = _measured(tmp_path, station)
    assert station.asked.count(("generator", "interrupt")) == 1
    assert measured.sent[FORWARD].generator.known.scheduled_rate == 10_000.0


def test_a_generator_whose_card_comes_up_slowly_has_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is overdue by how long it sends, not by how long its card is reset before."""
    monkeypatch.setattr(run_module, "OVERDUE_SECONDS", 0.1)
    monkeypatch.setattr(run_module, "TICK_SECONDS", 0.01)
    before = (5, 5)
    began, ended = list[float](), list[float]()

    def counts() -> Iterator[tuple[int, int]]:
        yield from [(0, 0), *[before] * 2]
        reset = time.monotonic() + 3 * run_module.OVERDUE_SECONDS + 2 * _experiment().seconds
        while time.monotonic() < reset:
            yield before
        began.append(time.monotonic())
        while True:
            yield (105, 105)

    def meddle(role: str, request: str) -> None:
        if request == "interrupt":
            ended.append(time.monotonic())

    station = FakeStation(slow=True, passed=counts(), meddle=meddle)
    _measured(tmp_path, station)
    [sends], [told] = began, ended
    assert told - sends >= run_module._overdue(_experiment(), 1.0)


def test_a_generator_that_is_ended_in_its_warm_up_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "OVERDUE_SECONDS", 0.1)
    nothing = {"sent": 0, "interrupted": True, "achieved_rate": None, "slip_ns": None}
    station = FakeStation(slow=True, sent=nothing)
    with pytest.raises(MachineError, match=r"it cannot send 10 kpkt/s: lower traffic\.rate"):
        _measured(tmp_path, station)
    [first, _] = runs(tmp_path, station)
    assert (first["status"], first["taps"]) == ("failed", None)
    assert (first["generator"]["interrupted"], first["generator"]["sent"]) == (True, 0)


def test_a_device_that_lets_nothing_through_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "PROBE_AGAIN_SECONDS", 0.02)
    station = FakeStation(mute=True)
    with pytest.raises(MachineError, match=r"no packet came through the DuT within 1 s: it sleeps"):
        _measured(tmp_path, station)
    assert station.asked.count(("generator", "probe")) > 10
    assert station.closed == 1


def test_a_guard_ends_the_generator_early(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Guard:
        period = 0.01

        def over(self, seconds: float, ingress: int, egress: int, reach: float) -> bool:
            seen.append((ingress, egress))
            return len(seen) == 3

    ticks: list[float] = []
    end = MachineError("it was asked to end")
    station = FakeStation(endless=True, fails={("generator", "interrupt"): end})
    with pytest.raises(MachineError, match="it was asked to end"):
        measure(
            _experiment(), _folders(tmp_path), ticks.append, Guard(), stations=everywhere(station)
        )
    assert len(seen) == 3
    assert len(ticks) >= 3
    assert seen[0] < seen[2]


def _two(tmp_path: Path, **told: Any) -> tuple[FakeStation, FakeStation]:
    """One for generator and timestamper, one for the DuT, each with files of its own."""
    sends = FakeStation(name="the sender", apart=tmp_path / "sender", **told.get("sends", {}))
    forwards = FakeStation(name="the device", apart=tmp_path / "device", **told.get("forwards", {}))
    return sends, forwards


def _measured(tmp_path: Path, station: FakeStation, device: FakeStation | None = None) -> Measured:
    """One measurement, with the DuT on a `device` of its own if there is one."""
    stations = {**everywhere(station), "dut": device or station}
    return measure(_experiment(), _folders(tmp_path), None, stations=stations)


def test_the_machine_of_the_generator_is_described_where_it_is_another_one(tmp_path: Path) -> None:
    told = {"environment": {"hostname": "the sender"}, "tuning": {"role": "generator"}}
    sends, forwards = _two(tmp_path)
    sends.answers = {("generator", "describe"): {"station": told}}
    measured = _measured(tmp_path, sends, forwards)
    assert measured.found.stations == {"generator": parsed("", told, Station)}
    # It is asked before packets are sent, and told which machine is the DuT's.
    order = [request for role, request in sends.asked if role == "generator"]
    assert order[:3] == ["begin", "describe", "probe"]
    assert sends.said["generator", "describe"] == {"boot_id": "of paper"}


def test_clocks_of_two_stations_are_told_and_asked_for_before_and_after(tmp_path: Path) -> None:
    sends, forwards = _two(tmp_path, forwards={"ahead_ns": 10**12})
    measured = _measured(tmp_path, sends, forwards)
    clocks = measured.found.clocks
    assert clocks is not None and clocks.dut is not None and clocks.dut.ahead_ns is not None
    assert clocks.against == "timestamper"
    assert all(least <= 10**12 <= most for least, most in clocks.dut.ahead_ns)
    for one in (clocks.generator, clocks.timestamper):
        assert one is not None and as_json(one).keys() == {"timekeeping"}
    order = [request for _, request in forwards.asked]
    first, last = order.index("clock"), len(order) - 1 - order[::-1].index("clock")
    assert first < order.index("observe") < order.index("read") < last
    assert "clock" not in order[order.index("observe") : order.index("read")]


@pytest.mark.parametrize("steps", [False, True])
def test_events_on_another_machine_are_told_by_the_clock_of_the_stamps(
    tmp_path: Path, *, steps: bool
) -> None:
    """Or not at all, where that machine's clock stepped."""
    told = {"environment": {"hostname": "the sender"}}
    sends, forwards = _two(tmp_path, forwards={"ahead_ns": 10**12})
    sends.answers = {("timestamper", "describe"): {"station": told}}
    truth: list[int] = []

    def happen(_role: str, request: str) -> None:
        if request != "read":
            return
        truth.append(time.monotonic_ns())
        begin = truth[0] + 10**12
        event = {"name": "it", "where": "dut", "command": ["true"], "at_ns": 0, "window_ns": 1,
                 "begin_ns": begin}  # fmt: skip
        facts = {"events": [{**event, "end_ns": begin + 1000, "status": 0}, event]}
        observed = {**ANSWERS["dut", "read"], "facts": facts}
        forwards.answers = {("dut", "read"): observed}
        forwards.ahead_ns += 10**11 if steps else 0

    forwards.meddle = happen
    measured = _measured(tmp_path, sends, forwards)
    failed = [row.message for row in measured.warnings if row.code == "event-failed"]
    if steps:
        assert measured.found.events == []
        [said] = failed
        assert said.startswith("the events cannot be joined with stamps that another machine took")
        return
    assert failed == []
    ended, endless = measured.found.events
    assert 0 < ended.within_ns < 10**9
    assert ended.end_ns is not None and endless.end_ns is None
    assert abs(ended.begin_ns - truth[0]) <= ended.within_ns
    assert abs(ended.end_ns - truth[0] - 1000) <= ended.within_ns


def test_two_stations_on_one_machine_describe_it_once(tmp_path: Path) -> None:
    sends, forwards = _two(tmp_path)
    measured = _measured(tmp_path, sends, forwards)
    assert ("generator", "describe") in sends.asked
    assert measured.found.stations == {}


@pytest.mark.parametrize(("role", "request_"), [*REQUESTS[1:], ("site", "close")])
def test_one_of_two_stations_fails_alone(tmp_path: Path, role: str, request_: str) -> None:
    """Also where it cannot be put back."""
    which = "forwards" if role == "dut" else "sends"
    error = gone(f"the {role}")
    sends, forwards = _two(tmp_path, **{which: {"fails": {(role, request_): error}}})
    with pytest.raises(MachineError, match=str(error)):
        _measured(tmp_path, sends, forwards)
    assert (sends.opened, forwards.opened, forwards.closed) == (1, 1, 1)
    assert sends.closed == 1 or request_ == "close"


@pytest.mark.parametrize("which", ["sends", "forwards"])
def test_a_station_that_cannot_be_opened_leaves_the_other_as_it_was(
    tmp_path: Path, which: str
) -> None:
    sends, forwards = _two(tmp_path, **{which: {"fails": {("site", "open"): gone("sshd")}}})
    with pytest.raises(MachineError, match="sshd was ended by SIGKILL"):
        _measured(tmp_path, sends, forwards)
    assert {role for role, _ in (*sends.asked, *forwards.asked)} == {"site"}
    assert forwards.closed == (which == "sends")
    assert sends.closed == 0  # it was never opened


def _experiment(**changes: Any) -> Experiment:
    traffic = {"duration": "100 ms", "warm_up": "0 s", **changes}
    return Experiment.model_validate({"name": "a", "traffic": traffic})


def _folders(tmp_path: Path) -> dict[str, RunFolder]:
    folder = RunFolder(tmp_path / "run")
    folder.start_anew()
    return {FORWARD: folder}


COUNTS_BEFORE = [(0, 0), (1, 1), (5, 3)]
"""Before the probe, after it, and where the measurement begins: two packets of it were lost."""


def test_what_still_comes_out_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as packets are missing and more of them come; not for those that the probe lost."""
    monkeypatch.setattr(run_module, "SETTLE_SECONDS", 0.001)
    monkeypatch.setattr(run_module, "DRAIN_SECONDS", 60.0)  # a busy machine may stand still
    for after, looks in (
        ([(105, 103)], 1),
        ([(105, 50), (105, 50)], 2),
        ([(105, 50), (105, 60), (105, 90), (105, 103)], 4),
        ([(105, 50), (105, 60), (105, 61), (105, 61)], 4),
    ):
        told = iter([*COUNTS_BEFORE, *after])
        station = FakeStation(passed=told)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        measured = _measured(folder, station)
        assert station.asked.count(("timestamper", "count")) == len(COUNTS_BEFORE) + looks
        assert list(told) == []
        assert measured.sent[FORWARD].stamped.warnings == []
    monkeypatch.setattr(run_module, "DRAIN_SECONDS", 0.01)
    endless = iter([*COUNTS_BEFORE, *((10_000, number) for number in range(10_000))])
    (tmp_path / "endless").mkdir()
    _measured(tmp_path / "endless", FakeStation(passed=endless))


def test_what_comes_out_after_the_taps_is_told(tmp_path: Path) -> None:
    """Of the packets that are missing; a few may be the kernel's own."""
    for unseen, after, said in (
        (900, 971, "at least 900 of the 900 packets"),
        (971, 600, "at least 600 of the 971 packets"),
        (971, 3, None),
        (0, None, None),
    ):
        quiet = [*COUNTS_BEFORE, (2005, 2003)]
        counts = quiet if after is None else [*quiet, (2005, 2003), (2005, 2003 + after)]
        folder = tmp_path / f"{unseen}-{after}"
        folder.mkdir()
        station = FakeStation(passed=iter(counts), unseen=unseen)
        measured = _measured(folder, station)
        told = measured.sent[FORWARD].stamped.warnings
        assert [one.code for one in told] == (["forwarded-after"] if said else [])
        assert all(said is not None and said in one.message for one in told)
