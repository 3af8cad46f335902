"""Real roles at the other end of a stream: a whole run, and ends that vanish."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from labtools import Machine, own_machine, wait_for

from tailtap.experiment.reading import read_experiment
from tailtap.host.changes import clean
from tailtap.host.changes.journal import read_all
from tailtap.measure.campaign import Campaign
from tailtap.measure.roles import PLACE
from tailtap.measure.run import everywhere
from tailtap.measure.runner import run_experiment
from tailtap.remote.session import Setup
from tailtap.remote.stream import StreamSite, StreamStation

COMMAND = (sys.executable, "-P", "-m", "tailtap.measure.roles.here")
TEXT = """
name: far
dut: {platform: bare-metal, forwarder: xdp, cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 500 ms, warm_up: 100 ms, slip_limit: 1 s}
"""


def places(station: int) -> list[Path]:
    """The journals of a station, by its process, and the folders where its roles may write."""
    ours = [row.path for row in read_all() if row.owner and row.owner.pid == station]
    return [*ours, *(PLACE / f"tt-{path.stem}-roles" for path in ours)]


class Noting(StreamStation):
    places: Sequence[Path] = ()

    def open(self, setup: Setup) -> StreamSite:
        site = super().open(setup)
        self.places = places(site.process.pid)
        return site


@pytest.mark.parametrize(
    "apart",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["same files", "other files"],
)
def test_a_run_on_a_station_behind_a_stream_is_like_any_other(tmp_path: Path, apart: bool) -> None:
    source = tmp_path / "far.yaml"
    source.write_text(TEXT)
    command = [*COMMAND]
    if apart:  # nothing is where the experiment's files are here
        hide = f"mount -t tmpfs -o ro none {tmp_path} && exec {shlex.join(COMMAND)}"
        command = ["unshare", "--mount", "sh", "-c", hide]
    station = Noting(command, "the far end")
    checked = read_experiment(source)
    campaign = Campaign(tmp_path / "out", stations=everywhere(station))
    [folder] = run_experiment(checked, source, campaign)
    record = json.loads(folder.record.read_text())
    assert (record["status"], record["error"]) == ("done", None)
    assert record["generator"]["sent"] == 2500
    assert record["forwarder"]["mode"] in ("native", "generic")
    assert record["taps"]["egress"]["seen"] >= 2500
    assert {"kernel-counters", "links", "memory", "taps"} <= set(record["instruments"])
    counts = json.loads((folder.evaluation / "evaluation.json").read_text())["counts"]
    assert counts["ingress"] == 2500
    assert station.places
    assert not any(path.exists() for path in station.places)


CONTROLLER = """
import sys
from collections.abc import Iterator
from pathlib import Path
from tailtap.results import database
from tailtap.experiment.reading import read_experiment
from tailtap.measure.campaign import Campaign
from tailtap.measure.run import everywhere
from tailtap.measure.runner import run_experiment
from tailtap.remote.stream import StreamStation
source = Path(sys.argv[1])
station = StreamStation(sys.argv[2:], "the far end")
campaign = Campaign(source.parent / "out", stations=everywhere(station))
run_experiment(read_experiment(source), source, campaign)
"""


def station_of(controller: subprocess.Popen[bytes]) -> int | None:
    """The process of its station, once taps write there."""
    children = Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text()
    for child in map(int, children.split()):
        if any(list(path.glob("*/*/ingress.stamps")) for path in places(child)):
            return child
    return None


@contextlib.contextmanager
def controller_of(source: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A measuring process whose station stamps packets, and the process of that station."""
    command = [sys.executable, "-c", CONTROLLER, str(source), *COMMAND]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as controller:
        try:
            wait_for(lambda: station_of(controller), "taps at work")
            station = station_of(controller)
            assert station is not None
            yield controller, station
        finally:
            controller.kill()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_machine_is_put_back_when_the_controller_is_gone(
    tmp_path: Path, number: signal.Signals
) -> None:
    source = tmp_path / "far.yaml"
    source.write_text(TEXT.replace("500 ms", "600 s"))
    with controller_of(source) as (controller, station):
        left = [path for path in places(station) if path.exists()]
        assert left
        controller.send_signal(number)
        controller.wait()
    # By itself: nobody calls `tailtap clean`.
    wait_for(lambda: not any(path.exists() for path in left), "an undone lab")


def test_what_a_killed_station_leaves_is_found(tmp_path: Path) -> None:
    source = tmp_path / "far.yaml"
    source.write_text(TEXT.replace("500 ms", "600 s"))
    with controller_of(source) as (controller, station):
        folders = places(station)
        os.kill(station, signal.SIGKILL)
        controller.wait()
    [record] = [json.loads(path.read_text()) for path in tmp_path.glob("out/runs/*/run.json")]
    assert record["status"] == "failed"
    assert record["error"] == "the far end was ended by SIGKILL"
    left = [item for item in clean.find() if item.pid == station]
    assert {"folder", "namespace"} <= {item.kind for item in left}
    clean.remove(left)
    assert not any(path.exists() for path in folders)


SECONDS = 2
MADE = """
ip link add manage type veth peer name other
ip link set dev other up
ip link set dev manage up
ip addr add 192.0.2.2/24 dev manage
ip -6 addr add 2001:db8::2/64 dev manage nodad
ip route add default via 192.0.2.1 dev manage
ip route add 198.51.100.0/24 via 192.0.2.1 dev manage metric 7 table 42
ip -6 route add default via 2001:db8::1 dev manage
"""
HOLDS = """
import sys
from tailtap.host.changes.journal import Journal
from tailtap.host.net.silent_link import SilentLink

journal = Journal.create()
link = SilentLink("manage", int(sys.argv[1]))
entry = journal.enter(link)
with journal.made(entry, link):
    print(*(one["pid"] for one in journal._applied[entry.number]), flush=True)
    sys.stdin.readline()
journal.close()
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with own_machine() as made:
        done = made.run("sh", "-ec", MADE)
        assert done.returncode == 0, done.stderr
        yield made


def state(machine: Machine) -> list[str]:
    every = [
        ("addr", "show", "dev", "manage", "scope", "global"),
        ("route", "show", "table", "all"),
        ("-6", "route", "show", "table", "all"),
    ]
    found = [machine.run("ip", *words).stdout for words in every]
    return [" ".join(sorted(one.split("\n"))) for one in found]


def is_up(machine: Machine) -> bool:
    [row] = json.loads(machine.run("ip", "-j", "link", "show", "dev", "manage").stdout)
    return "UP" in row["flags"]


@pytest.mark.parametrize(
    ("killed", "seconds"),
    [
        ("nobody", SECONDS),
        pytest.param("who takes it down", SECONDS, marks=pytest.mark.slow),
        pytest.param("who brings it up later", SECONDS, marks=pytest.mark.slow),
        ("who holds it", SECONDS),
        ("all", 60),
        pytest.param("nobody, early", 60, marks=pytest.mark.slow),
    ],
)
def test_it_comes_up_again(machine: Machine, killed: str, seconds: int) -> None:
    wait_for(lambda: "tentative" not in machine.run("ip", "addr").stdout, "addresses")
    before = state(machine)
    command = machine.command(sys.executable, "-P", "-c", HOLDS, str(seconds))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holder:
        assert holder.stdout is not None
        later, switch = map(int, holder.stdout.readline().split())
        if killed != "nobody, early":
            wait_for(lambda: not is_up(machine), "it goes down")
            assert state(machine)[1:] != before[1:]
        if killed in ("who takes it down", "all"):
            os.killpg(switch, signal.SIGKILL)
        if killed in ("who brings it up later", "all"):
            os.killpg(later, signal.SIGKILL)
        if killed in ("who holds it", "all"):
            holder.kill()
            holder.wait()
        if killed == "all":
            assert "silent-link" in dict(machine.cleaned())
        if killed != "nobody, early":
            wait_for(lambda: state(machine) == before, "it is up, with all that it had")
        if killed not in ("who holds it", "all"):
            holder.communicate("\n")
            assert holder.returncode == 0
    assert is_up(machine)
    assert state(machine) == before
    if killed == "who holds it":
        machine.tailtap("clean", "--quiet")
    if killed != "who takes it down":  # the other one sleeps on in its place
        wait_for(lambda: not any(map(alive, (later, switch))), "both have ended")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
