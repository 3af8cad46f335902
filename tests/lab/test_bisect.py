"""`git bisect run` over real runs, with the script of docs/howto/ci.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from labtools import own_machine

PAGE = Path(__file__).parents[2] / "docs/howto/ci.md"
COMMITS, WRONG = 16, 11
MAKEFILE = """\
load.yaml: forwarder.txt
\tsed "s/HELD/$$(cat forwarder.txt)/" load.in > load.yaml
"""
LOAD = f"""\
name: load
dut:
  cpus: [1]
  forwarder: fault
  options: {{hold: {{ids: {list(range(17, 11_000, 50))}, time: HELD}}}}
traffic: {{rate: 20 kpkt/s, duration: 500 ms, warm_up: 50 ms, cpu: 0, slip_limit: 10 s}}
repeat: 6
"""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="generator and DuT need a CPU each"
)


def git(repository: Path, *words: str) -> str:
    command = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.timed  # a host that stops the device for 20 ms makes every tail long
@pytest.mark.timeout(1800)
def test_the_commit_that_made_the_tail_worse_is_found(tmp_path: Path) -> None:
    """Of 16 commits one has the device hold packets for 40 ms in place of 20."""
    repository, results = tmp_path / "forwarder", tmp_path / "results"
    repository.mkdir()
    git(repository, "init", "--quiet")
    found = re.search(r"^#!/bin/sh\n# step\.sh.*?(?=^```)", PAGE.read_text(), re.S | re.M)
    assert found
    (repository / "Makefile").write_text(MAKEFILE)
    (repository / "load.in").write_text(LOAD)
    (repository / ".gitignore").write_text("load.yaml\n")
    commits = []
    for number in range(1, COMMITS + 1):
        held = "40 ms" if number >= WRONG else "20 ms"
        (repository / "forwarder.txt").write_text(held)
        (repository / "notes.txt").write_text(f"{number}\n")
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "--message", f"Change {number}")
        commits.append(git(repository, "rev-parse", "HEAD"))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "tailtap").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tailtap "$@"\n')
    step = tmp_path / "step.sh"
    # Times of files say nothing where git exchanges them within a second.
    step.write_text(found[0].replace("make ||", "make --always-make --silent ||"))
    for path in (*programs.iterdir(), step):
        path.chmod(0o755)
    script = f"""
        export PATH={programs}:$PATH
        cd {repository}
        git checkout --quiet {commits[0]} && make --always-make --silent
        tailtap run load.yaml --out {results}/good --quiet || [ $? -eq 3 ] || exit 9
        git bisect start {commits[-1]} {commits[0]} && git bisect run {step}
    """
    with own_machine() as machine:
        done = machine.run("sh", "-c", script, seconds=1_500)
        assert machine.namespaces() == []
    assert f"{commits[WRONG - 1]} is the first bad commit" in done.stdout, done.stdout + done.stderr
    # Of fifteen commits each step leaves half; one that cannot be judged costs one more.
    assert 4 <= len(list(results.iterdir())) - 1 <= 6
