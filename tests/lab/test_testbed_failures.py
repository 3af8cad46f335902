"""What can be wrong with the hosts of a testbed before, between and during runs, each for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from labtools import PATIENCE_SECONDS, wait_for
from ssh_hosts import Hosts, ssh_hosts
from testbeds import EXPERIMENT, TESTBED, as_it_was, run_on, runs, state, words

from tailtap.remote.serving import LEASE_SECONDS

ADMIN, PLAIN = "tt-admin", "tt-plain"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with ssh_hosts(folder, ["tester", "dut"]) as made:
        made.cable("tester", "card0", "dut", "card1")
        made.cable("dut", "card2", "tester", "card3")
        (folder / "lab.yaml").write_text(TESTBED.format(**made.addresses))
        (folder / "experiment.yaml").write_text(EXPERIMENT)
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(hosts: Hosts) -> Iterator[None]:
    with as_it_was(hosts):
        yield


def test_a_card_that_is_not_there_is_told_in_one_line(hosts: Hosts, tmp_path: Path) -> None:
    lab = hosts.folder / "card.yaml"
    lab.write_text(TESTBED.format(**hosts.addresses).replace("card1", "card9"))
    done = hosts.controller.tailtap(*words(hosts, tmp_path / "out", "--quiet", testbed=lab.name))
    assert done.returncode == 3
    [run] = runs(tmp_path / "out")
    assert run["error"].startswith("dut: there is no interface 'card9'")
    assert "\n" not in run["error"]


ALIASES = """
Host unknown changed stranger plain
    HostName {dut}
Host i686
    HostName {tester}
Host nobody
    HostName 198.51.100.250
Host unknown
    UserKnownHostsFile /dev/null
Host changed
    UserKnownHostsFile {folder}/changed_hosts
Host stranger
    User stranger
Host plain
    User {plain}
"""
REFUSED = {
    "unknown": "its host key is not known: log in by hand once",
    "changed": "its host key is another one than before: find out why",
    "stranger": "cannot be reached by ssh",
    "nobody": "cannot be reached by ssh",
    "plain": "may not become root without a password: log in as root, or allow it NOPASSWD",
    "i686": "is of the architecture i686 and this machine of ",
}


def test_hosts_that_cannot_be_used_are_told_each_in_one_line(hosts: Hosts) -> None:
    folder = hosts.folder
    other = " ".join((folder / "login.pub").read_text().split()[:2])
    (folder / "changed_hosts").write_text(f"{hosts.addresses['dut']} {other}\n")
    aliases = ALIASES.format(folder=folder, plain=PLAIN, **hosts.addresses)
    (folder / "aliases").write_text(aliases + (folder / "ssh_config").read_text())
    rows = [f"  {name}: {{ssh: {name}, python: /usr/bin/python3}}" for name in REFUSED]
    roles = "roles: {dut: i686, generator: i686, timestamper: i686}"
    lab = folder / "refused.yaml"
    lab.write_text("\n".join(["hosts:", *rows, "cables: []", roles, "ssh_config: aliases"]))
    machine = folder / "uname"
    machine.write_text("#!/bin/sh\necho i686\n")
    machine.chmod(0o755)
    with hosts.users("dut", "", PLAIN), hosts.file("tester", "/usr/bin/uname", machine):
        done = hosts.controller.tailtap("testbed", "check", str(lab), "--json")
    assert done.returncode == 3, (done.stdout, done.stderr)
    told = {row["name"]: row["said"] for row in json.loads(done.stdout)["hosts"]}
    for name, said in REFUSED.items():
        assert said in told[name]
        assert "\n" not in told[name]


@pytest.mark.slow
def test_a_login_that_becomes_root_by_sudo_is_enough(hosts: Hosts, tmp_path: Path) -> None:
    lab = hosts.folder / "admin.yaml"
    dut = hosts.addresses["dut"]
    lab.write_text(TESTBED.format(**{**hosts.addresses, "dut": f"{ADMIN}@{dut}"}))
    with hosts.users("dut", f"{ADMIN} ALL=(ALL) NOPASSWD: ALL\n", ADMIN):
        [run] = run_on(hosts, tmp_path / "out", testbed=lab.name)
    assert (run["status"], run["taps"]["egress"]["stored"]) == ("done", 2000)


def refuse_after_the_first(hosts: Hosts, tmp_path: Path, said: str) -> None:
    """Of two runs, the first one is kept and the second one failed in one line."""
    first, second = runs(tmp_path / "out")
    assert (first["status"], second["status"]) == ("done", "failed")
    assert said in second["error"]
    assert "\n" not in second["error"]


def resume(hosts: Hosts, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = {run["slug"]: run["finished"] for run in runs(out) if run["status"] == "done"}
    made = run_on(hosts, out, "--set", "repeat=2", "--resume")
    after = {run["slug"]: run["finished"] for run in made}
    assert [run["status"] for run in made] == ["done", "done"]
    assert before.items() <= after.items()


DISKS = {
    "traces": ("dut", "trace.events: cannot write: No space left on device", ": make room"),
    "stamps": ("tester", "the stamps of this run need 0.1 MB and the disk", ": make room there"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DISKS)
def test_a_host_whose_disk_is_full(hosts: Hosts, tmp_path: Path, case: str) -> None:
    host, said, remedy = DISKS[case]
    more = ("--set", "trace=full")
    with hosts.disk(host, "/var/tmp", 12 << 10):
        done = hosts.controller.tailtap(*words(hosts, tmp_path / "out", *more))
    assert done.returncode == 3
    [run] = runs(tmp_path / "out")
    assert said in run["error"]
    assert run["error"].endswith(remedy)
    assert "\n" not in run["error"]
    run_on(hosts, tmp_path / "out", *more, "--resume")


HURRIED = """
from tailtap.measure import run
from tailtap.remote import stream
run.OVERTIME_SECONDS, run.LEASE_SECONDS = 0.0, 9.0
stream.ANSWER_SECONDS, stream.CLOSE_SECONDS = 3.0, 1.0
stream.StreamSession.ask.__kwdefaults__["seconds"] = 3.0
"""
"""A controller with little patience, which asks hosts to wait for it for ten seconds only. A
generator is asked to start after that, and waits for `LEASE_SECONDS` again."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("host", ["dut", "tester"])
def test_a_network_that_is_cut(hosts: Hosts, tmp_path: Path, host: str) -> None:
    """The run fails, and its host puts everything back though nobody can tell it to."""
    machine = hosts.machines[host]
    before = hosts.at_first[host]
    arguments = words(hosts, tmp_path / "out", "--set", "repeat=2")
    held = partial(hosts.controller.held, tmp_path, *arguments, number=2, first=HURRIED)
    with held() as running, hosts.cut(host):
        assert state(machine)[:2] != before[:2]
        running.go_on()
        status, errors = running.ended()
        wait_for(lambda: state(machine)[:2] == before[:2], host, LEASE_SECONDS + PATIENCE_SECONDS)
    assert status == 3, errors
    refuse_after_the_first(hosts, tmp_path, f"{host} does not answer within 3 s")
    resume(hosts, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_controller_that_vanishes_without_a_word(hosts: Hosts, tmp_path: Path) -> None:
    """Its connections are neither closed nor reset: hosts leave when their lease ends."""
    machines = [hosts.machines[name] for name in ("tester", "dut")]
    before = [hosts.at_first[name][:2] for name in ("tester", "dut")]
    held = partial(hosts.controller.held, tmp_path, *words(hosts, tmp_path / "out"), first=HURRIED)
    with held() as running, hosts.cut("tester"), hosts.cut("dut"):
        running.kill(group=True)
        assert all(machine.namespaces() for machine in machines)
        patience = LEASE_SECONDS + PATIENCE_SECONDS
        wait_for(lambda: [state(one)[:2] for one in machines] == before, "their lease", patience)
