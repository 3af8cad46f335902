"""Kinds of another package are measured as ours are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from labtools import Machine, measured, record, stamps, was_made
from packages import install_kinds

EXPERIMENT = """\
name: others
dut: {platform: pod, cache: 3 MiB, forwarder: {relay: {lanes: 2}}, cpus: [1]}
traffic:
  generator: trickle
  options: {drops: 2}
  rate: 2 kpkt/s
  duration: 500 ms
  warm_up: 100 ms
  cpu: 0
tap: {kind: listener}
"""


def test_a_run_has_their_platform_forwarder_generator_and_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kinds(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    made = measured(tmp_path, EXPERIMENT)
    folder = made.run
    run = record(folder)
    assert [row["id"] for row in stamps(folder / "egress.stamps")] == list(range(1_000))
    assert run["platform"]["cache"] == run["parameters"]["dut"]["cache"] == 3 * 2**20
    assert run["parameters"]["dut"]["options"] == {"lanes": 2}
    assert run["traits"]["virtualization"] == "container"
    assert json.loads((folder / "generator.json").read_text())["by"] == "trickle"
    assert (folder / "listened").exists()


LEFT = """
import os, sys
from tailtap.host.changes.journal import Journal
from other_kinds import Flag
entered = Journal.create().held(Flag(sys.argv[1]))
entered.__enter__()
os._exit(9)
"""


def test_what_their_resources_changed_is_cleaned(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kinds(tmp_path / "packages")
    flag = tmp_path / "flag"
    with monkeypatch.context() as with_package:
        with_package.setenv("PYTHONPATH", str(tmp_path / "packages"))
        assert machine.run(sys.executable, "-c", LEFT, str(flag)).returncode == 9
    assert flag.exists()
    # Where the package is not installed nobody knows how to undo it.
    said = machine.tailtap("clean")
    assert f"says what this tailtap cannot undo (flag {flag})" in said.stderr
    assert flag.exists()
    with monkeypatch.context() as with_package:
        with_package.setenv("PYTHONPATH", str(tmp_path / "packages"))
        done = machine.tailtap("clean", "--json")
    assert was_made(done), done.stderr
    assert ("flag", str(flag)) in [
        (row["kind"], row["name"]) for row in json.loads(done.stdout)["removed"]
    ]
    assert not flag.exists()
