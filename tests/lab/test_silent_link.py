"""An interface that is down for a while comes up again, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from labtools import Machine, own_machine, wait_for

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
    """Addresses, and the routes of all tables."""
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
            cleaned = machine.tailtap("clean", "--json")
            assert "silent-link" in [row["kind"] for row in json.loads(cleaned.stdout)["removed"]]
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
