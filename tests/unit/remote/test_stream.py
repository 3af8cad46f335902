"""A station at the other end of a stream: what passes, and what happens when an end is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import sleeps, until
from fake_station import LIFETIME, PACKETS
from stamps import read_stamps

from tailtap.analysis.runs.folder import RunFolder
from tailtap.base.errors import Bug, InputError, MachineError
from tailtap.experiment.model import Experiment
from tailtap.lab.topology.graphs import FORWARD
from tailtap.measure.run import everywhere, measure
from tailtap.records.record import as_json
from tailtap.remote.connection import Connection
from tailtap.remote.mux import HELLO, encode
from tailtap.remote.session import FAILED, FINISHED, RoleEvent, RolePlan, Setup
from tailtap.remote.stream import StreamSite, StreamStation, Talk

SUPPORT = Path(__file__).parents[2] / "support"
SERVER = """
import contextlib, json, os, sys, tempfile, time
sys.path.insert(0, {support!r})
from pathlib import Path
from fake_station import FakeStation, failed
from tailtap.base.errors import InputError
from tailtap.remote import serving
from tailtap.remote.serving import serve

told = json.loads(sys.argv[1])
def meddle(role, request):
    if [role, request] == told.get("refuses"):
        raise InputError("the plan makes no sense")
    if [role, request] == told.get("dies"):
        os.kill(os.getpid(), 9)
    if [role, request] == told.get("hangs"):
        time.sleep(3600)
    if [role, request] == told.get("lingers"):
        Path(told["marker"]).with_name("lingering").touch()
        time.sleep(1)
    if [role, request] == told.get("full"):
        raise OSError(28, "No space left on device", "/far/stamps")
    if [role, request] == told.get("errs"):
        raise KeyError("of nobody")
    if [role, request] == told.get("raves"):
        os.write(1, b"raving\\n")
station = FakeStation(
    meddle=meddle, marker=Path(told["marker"]), endless=told.get("endless", False),
    happens={{role: failed(why) for role, why in told.get("fail", {{}}).items()}},
)
if told.get("lies"):
    serving._RoleTalk.do = lambda self, message: {{"folder": "/etc", "files": told["lies"]}}

@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(dir=Path(told["marker"]).parent, prefix="far-") as path:
        yield Path(path)

lease = told.get("lease", serving.LEASE_SECONDS)
serve(station, sys.stdin.fileno(), sys.stdout.fileno(), folder, lease)
"""
PATIENCE_SECONDS = 200.0
LEASE_SECONDS = 2.0
"""Long against any pause that the machine may make, and short enough to wait for."""
SETUP = Setup(experiment={})


def station(tmp_path: Path, name: str = "the far end", **told: Any) -> StreamStation:
    """One to which things happen as `told`."""
    told["marker"] = str(tmp_path / "closed")
    program = SERVER.format(support=str(SUPPORT))
    return StreamStation([sys.executable, "-c", program, json.dumps(told)], name)


@contextlib.contextmanager
def opened(tmp_path: Path, **told: Any) -> Iterator[StreamSite]:
    site = station(tmp_path, **told).open(SETUP)
    try:
        yield site
    finally:
        with contextlib.suppress(MachineError):
            site.close()


def closed(tmp_path: Path) -> bool:
    """Whether the site at the other end was closed, as it may be in a moment."""
    return until((tmp_path / "closed").exists)


def test_a_whole_run_passes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start_anew()
    measured = measure(
        _experiment(), {FORWARD: folder}, None, stations=everywhere(station(tmp_path))
    )
    assert closed(tmp_path)
    assert as_json(measured.found)["counters"] == {"lifetime": as_json(LIFETIME)}
    assert measured.found.forwarder == {"version": "1", "cpu_ns": None}
    assert measured.sent[FORWARD].taps["ingress"].seen == PACKETS
    assert folder.generator.is_file()
    # What the roles wrote over there has come, and nothing of it is left there.
    assert {path.name for path in folder.path.iterdir()} == {
        "egress.stamps", "forwarder.log", "generator.json", "ingress.stamps"
    }  # fmt: skip
    assert len(read_stamps(folder.ingress)[1]) == PACKETS
    assert {path.name for path in tmp_path.iterdir()} == {"closed", "run"}


def test_large_files_and_folders_come_whole(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with opened(tmp_path) as site:
        dut = site.begin("dut", RolePlan(folder=str(tmp_path / "here")))
        dut.ask("prepare")
        [far] = tmp_path.glob("far-*/0")
        content = os.urandom(1 << 20) * 8 + b"end"
        (far / "traces/cpu 1").mkdir(parents=True)
        (far / "traces/cpu 1/events").write_bytes(content)
        (far / "empty").touch()
        dut.fetch()
        assert (tmp_path / "here/traces/cpu 1/events").read_bytes() == content
        assert (tmp_path / "here/empty").read_bytes() == b""
        assert (tmp_path / "here/forwarder.log").read_text() == "it forwards\n"
    assert not list(tmp_path.glob("far-*"))


def test_what_a_failed_run_left_is_fetched_too(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start_anew()
    far = station(tmp_path, full=["dut", "observe"])
    with pytest.raises(MachineError) as caught:
        measure(_experiment(), {FORWARD: folder}, None, stations=everywhere(far))
    assert str(caught.value) == "the far end: No space left on device: /far/stamps"
    assert (folder.path / "forwarder.log").read_text() == "it forwards\n"
    assert {path.name for path in tmp_path.iterdir()} == {"closed", "run"}


@pytest.mark.parametrize("name", ["../passwd", "/etc/passwd", "a/../../b"])
def test_files_come_into_the_run_folder_only(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, lies=[name]) as site:
        dut = site.begin("dut", RolePlan(folder=str(tmp_path / "here")))
        with pytest.raises(MachineError, match="for nobody"):
            dut.fetch()
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("what", "kind", "said", "goes_on"),
    [
        ("refuses", InputError, "the plan makes no sense", True),
        ("errs", Bug, "the far end: a bug of tailtap: KeyError: 'of nobody'", True),
        ("dies", MachineError, "the far end was ended by SIGKILL", False),
        ("raves", MachineError, "says what makes no sense: 'raving'", False),
    ],
)
def test_what_happens_to_a_role_is_raised_here(
    tmp_path: Path, what: str, kind: type[Exception], said: str, goes_on: bool
) -> None:
    with opened(tmp_path, **{what: ["dut", "prepare"]}) as site:
        dut = site.begin("dut", RolePlan())
        with pytest.raises(kind, match=said) as caught:
            dut.ask("prepare")
        assert not isinstance(caught.value, Bug) or "in meddle" in caught.value.told
        assert not goes_on or dut.ask("why") == {"reason": "it sleeps"}
    assert what == "dies" or closed(tmp_path)


def test_the_environment_is_that_of_the_far_end(tmp_path: Path) -> None:
    far = station(tmp_path)
    assert far.environment().kernel.release == "of paper"
    far.clean()


def test_a_site_that_cannot_be_opened_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the plan makes no sense"):
        station(tmp_path, refuses=["site", "open"]).open(SETUP)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert all(b"fake_station" not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)


def test_a_far_end_that_dies_while_nobody_asks_is_an_event(tmp_path: Path) -> None:
    with opened(tmp_path, endless=True) as site:
        generator = site.begin("generator", RolePlan())
        generator.ask("start")
        assert generator.events() == []
        os.kill(site.process.pid, signal.SIGKILL)
        assert until(generator.events) == [
            RoleEvent(event=FAILED, reason="the far end was ended by SIGKILL")
        ]


def test_a_role_that_hangs_is_given_up(tmp_path: Path) -> None:
    with opened(tmp_path, hangs=["dut", "prepare"]) as site:
        dut = site.begin("dut", RolePlan())
        with pytest.raises(MachineError, match=r"the far end does not answer within 0.2 s"):
            dut.ask("prepare", seconds=0.2)
        site.process.close()  # nobody waits an hour for it
    assert closed(tmp_path)


def test_events_that_come_with_an_answer_are_kept(tmp_path: Path) -> None:
    """What went wrong there is told with the name of the station."""
    said = RoleEvent(event=FAILED, reason="the far end: over")
    with opened(tmp_path, fail={"dut": "over"}) as site:
        dut, generator = site.begin("dut", RolePlan()), site.begin("generator", RolePlan())
        dut.ask("observe")
        generator.ask("start")
        for session, wanted in ((dut, said), (generator, RoleEvent(event=FINISHED))):
            assert until(session.events) == [wanted]


@pytest.mark.parametrize("hangs", [[], ["dut", "prepare"]])
def test_a_site_whose_controller_falls_silent_is_closed(tmp_path: Path, hangs: list[str]) -> None:
    """The stream stays open, as it does when a cable is cut; a role may be at work."""
    with opened(tmp_path, lease=LEASE_SECONDS, hangs=hangs) as site:
        dut = site.begin("dut", RolePlan())
        with contextlib.ExitStack() as stack:
            if hangs:
                stack.enter_context(pytest.raises(MachineError, match="far end does not answer"))
            dut.ask("prepare", seconds=0.1 if hangs else PATIENCE_SECONDS)
        asked = time.monotonic()
        assert closed(tmp_path)
        assert time.monotonic() - asked > LEASE_SECONDS / 2  # and not at once
        with pytest.raises(MachineError, match=r"the far end (ended|does not answer)"):
            dut.ask("why")


def test_a_lease_is_renewed_by_questions_and_lasts_as_long_as_asked(tmp_path: Path) -> None:
    with opened(tmp_path, lease=LEASE_SECONDS) as site:
        dut = site.begin("dut", RolePlan())
        for _ in range(3):
            time.sleep(0.4 * LEASE_SECONDS)
            dut.ask("why")
        site.keep(PATIENCE_SECONDS)
        time.sleep(1.1 * LEASE_SECONDS)
        assert dut.ask("why") == {"reason": "it sleeps"}
        site.keep(0.2)
        assert until(lambda: site.process.ended) and closed(tmp_path)


def test_nothing_but_sites_and_roles_can_be_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path) as site:
        with pytest.raises(InputError, match="cannot be asked for a second site now"):
            site.begin_talk("site", setup=as_json(SETUP))
        with pytest.raises(MachineError, match="cannot be asked for 'tea'"):
            site.begin_talk("tea")
        dut, _ = site.begin_talk("role", role="dut", plan={})
        with pytest.raises(InputError, match=r"cannot be asked for \['id', 'sing'\] now"):
            site.call(dut, PATIENCE_SECONDS, sing=True)
        assert site.call(dut, PATIENCE_SECONDS, ask="why", content={}) == {"reason": "it sleeps"}


CONTROLLER = """
import sys, time
sys.path.insert(0, {support!r})
from tailtap.remote.session import RolePlan, Setup
from tailtap.remote.stream import StreamStation
site = StreamStation({command!r}, "the far end").open(Setup(experiment={{}}))
site.begin("dut", RolePlan()).ask({asked!r})
print("asked", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_site_whose_controller_is_gone_closes_itself(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = station(tmp_path)._command
    program = CONTROLLER.format(support=str(SUPPORT), command=command, asked="prepare")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"asked\n"
        assert not (tmp_path / "closed").exists()
        controller.send_signal(number)
    assert closed(tmp_path)


@contextlib.contextmanager
def asking(far: StreamStation) -> Iterator[tuple[subprocess.Popen[bytes], Connection, Talk, Talk]]:
    """Somebody who is gone in the end: the far end, the stream to it, and its site and its DuT."""
    with subprocess.Popen(far._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        connection = Connection(process.stdout.fileno(), process.stdin.fileno(), "the far end")
        site, dut = Talk(), Talk()
        site.channel = connection.open("site", site, setup=as_json(SETUP))
        dut.channel = connection.open("role", dut, role="dut", plan={})
        deadline = time.monotonic() + PATIENCE_SECONDS
        connection.wait(lambda: bool(site.answers and dut.answers), deadline)
        yield process, connection, site, dut
        connection.close()
        process.stdin.close()


def test_a_site_closes_itself_while_a_role_works(tmp_path: Path) -> None:
    """Whoever asks is gone, and nobody sends a signal, as on another machine."""
    with asking(station(tmp_path, hangs=["dut", "prepare"])) as (_, connection, _, dut):
        dut.channel.send(b'{"id": 1, "ask": "prepare", "content": {}}\n')
        with pytest.raises(TimeoutError):
            connection.wait(lambda: 1 in dut.answers, time.monotonic() + 0.2)
    assert not list(tmp_path.glob("far-*"))
    assert closed(tmp_path)


def test_a_site_that_is_being_closed_is_closed_whole(tmp_path: Path) -> None:
    """Whoever asked for it dies meanwhile, and a signal says so as well."""
    with asking(station(tmp_path, lingers=["site", "close"])) as (process, connection, site, _):
        site.channel.send(b'{"id": 1, "close": true}\n')
        connection.look()
        assert until((tmp_path / "lingering").exists)
        assert process.stdin is not None
        process.stdin.close()
        process.send_signal(signal.SIGTERM)
    assert (tmp_path / "closed").exists()
    assert not list(tmp_path.glob("far-*"))


def test_an_idle_station_sleeps(tmp_path: Path) -> None:
    """Nothing wakes up the machine while packets are sent."""
    with opened(tmp_path, endless=True) as site:
        site.begin("dut", RolePlan()).ask("observe")
        site.begin("generator", RolePlan()).ask("start")
        assert sleeps(site.process.pid)


OLD = encode(HELLO, 0, 0, b'{"protocol":0}')
OTHER_VERSION = f"import os; os.write(1, {OLD!r}); os.read(0, 1)"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["sh", "-c", "echo Welcome to this machine; cat"],
         "says what makes no sense: 'Welcome to this machine'"),
        (["sh", "-c", "echo python3: not found >&2; exit 127"],
         "ended with status 127: python3: not found"),
        ([sys.executable, "-c", OTHER_VERSION],
         ("speaks version 0 of the protocol, this program version 1: install the same version of "
          "tailtap at both ends")),
    ],
)  # fmt: skip
def test_a_program_that_is_no_station_is_quoted(program: list[str], said: str) -> None:
    with pytest.raises(MachineError) as caught:
        StreamStation(program, "the far end").open(SETUP)
    assert str(caught.value) == f"the far end {said}"


def test_what_is_no_request_ends_a_station() -> None:
    command = [sys.executable, "-P", "-m", "tailtap.measure.roles.here"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"GET / HTTP/1.1\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_SECONDS) == 3
        said = process.stderr.read().decode()
    assert said == "tailtap: who asks says what makes no sense: 'GET / HTTP/1.1'\n"


def _experiment() -> Experiment:
    traffic = {"duration": "100 ms", "warm_up": "0 s"}
    return Experiment.model_validate({"name": "a", "traffic": traffic})
