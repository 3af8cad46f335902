"""README, tutorial and how-to pages are typed as they stand, line by line, on what they made.

The experiment files that the pages print are made shorter, and nothing else is changed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from labtools import Machine
from read_pages import Step, files, run, steps

# What they apply and revert is the whole machine's.
pytestmark = [pytest.mark.apart, pytest.mark.timed, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial/first-report.md",
    "docs/howto/experiments.md",
    "docs/howto/captures.md",
    "docs/howto/published-results.md",
    "docs/howto/parts.md",
)
SHORTER = {
    r"duration: \d+ s": "duration: 300 ms, slip_limit: 10 s",
    r"warm_up: [^,}]+": "warm_up: 100 ms",
    r"repeat: 3": "repeat: 1",
    r", 100 kpkt/s\]": "]",
}
"""What becomes of the files: fewer and shorter runs; a busy host may have packets sent late."""
MORE = {"search": "--to '20 kpkt/s' --trial '300 ms' --short '100 ms' --no-latency"}
"""A search takes its times from options alone."""
AS_ROOT = f"""\
sudo() {{ "$@"; }}
make() {{ command make --no-print-directory -f {ROOT}/Makefile -o setup SUDO= "$@"; }}
"""
"""Root needs no sudo, and the tests have set up what `make` would."""


def shortened(text: str) -> str:
    for old, new in SHORTER.items():
        text = re.sub(old, new, text)
    return text


def test_every_command_works_as_it_stands(machine: Machine, tmp_path: Path) -> None:
    """All pages in one folder: what one repeats of another is not done again."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "examples").mkdir()
    for example in (ROOT / "examples").glob("*.yaml"):
        (tmp_path / "examples" / example.name).write_text(shortened(example.read_text()))
    every: dict[str, Step] = {}
    for page in PAGES:
        text = (ROOT / page).read_text()
        for name, content in files(text):
            path = tmp_path / name
            assert not path.exists() or path.read_text() == shortened(content), name
            path.write_text(shortened(content))
        for step in steps(text):
            every.setdefault(step.command.partition("  #")[0].strip(), step)
    assert len(every) > 30
    shell = machine.command("bash")
    try:
        results = run(list(every.values()), shell, tmp_path, AS_ROOT, MORE, timeout=560)
    finally:  # what the pages put back themselves, if they were not cut off
        machine.tailtap("host", "revert", "--quiet")
    for step, (status, output) in zip(every.values(), results, strict=True):
        assert status in step.statuses, (step.command, status, output)
        assert "Traceback" not in output, (step.command, output)
        if step.statuses == [0]:
            # What is measured differs; what is measured is called the same.
            for word in re.findall(r"^ *([a-z][a-z0-9.]*) ", step.shown, re.M):
                assert re.search(rf"^ *{re.escape(word)}\b", output, re.M), (step.command, word)
    [(_, demo)] = [one for step, one in zip(every.values(), results, strict=True)
                   if step.command == "make demo"]  # fmt: skip
    assert re.search(r"^002-bare-metal: \d+ packets later than p99.9, ", demo, re.M), demo
