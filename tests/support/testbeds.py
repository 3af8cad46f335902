"""A testbed of hosts that `ssh_hosts` makes: its files, its runs, and whether it is as it was."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from labtools import Machine, record, wait_for, was_made
from ssh_hosts import Hosts, State

TESTBED = """
hosts:
  tester: {{ssh: {tester}, python: /usr/bin/python3}}
  dut: {{ssh: {dut}, python: /usr/bin/python3}}
cables:
  - {{ends: [tester:card0, dut:card1]}}
  - {{ends: [dut:card2, tester:card3]}}
roles: {{dut: dut, generator: tester, timestamper: tester}}
ssh_config: ssh_config
"""
EXPERIMENT = """
name: far
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 400 ms, warm_up: 100 ms, cpu: 0, slip_limit: 1 s}
"""


@contextlib.contextmanager
def as_it_was(hosts: Hosts) -> Iterator[None]:
    """Whatever is done within, every host is as it was at first afterwards.

    Right before, something that the last test broke could still be at work.
    """
    for name, machine in hosts.machines.items():
        hosts.at_first.setdefault(name, state(machine))
    yield
    for name, machine in hosts.machines.items():
        wait_for(partial(is_as, machine, hosts.at_first[name]), name)


def is_as(machine: Machine, before: State) -> bool:
    return state(machine) == before


def state(machine: Machine) -> State:
    folders = ["/var/lib/tailtap/journals", "/var/tmp"]
    kept = machine.run("find", *folders, "-mindepth", "1").stdout.splitlines()
    links = json.loads(machine.run("ip", "-j", "link", "show").stdout)
    cards = sorted((link["ifname"], link["mtu"], "UP" in link["flags"]) for link in links)
    return machine.namespaces(), sorted(kept), str(cards)


def words(hosts: Hosts, out: Path, *more: str, testbed: str = "lab.yaml") -> list[str]:
    folder = hosts.folder
    return ["run", str(folder / "experiment.yaml"), "--testbed", str(folder / testbed),
            "--out", str(out), *more]  # fmt: skip


def run_on(hosts: Hosts, out: Path, *more: str, testbed: str = "lab.yaml") -> list[dict[str, Any]]:
    """The records of the runs of an experiment that are made on the hosts."""
    done = hosts.controller.tailtap(*words(hosts, out, *more, testbed=testbed))
    assert was_made(done), done.stderr
    return runs(out)


def runs(out: Path) -> list[dict[str, Any]]:
    return [record(path) for path in sorted((out / "runs").iterdir())]
