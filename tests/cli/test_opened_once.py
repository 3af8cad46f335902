"""`explain` and `report` open each file of a run once."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from program import TAILTAP

from tests.golden import folders

OPENED = re.compile(r'openat2?\((?:AT_FDCWD|\d+)(?:<(.*?)>)?, "(.*?)", \{?(?:flags=)?([A-Z_|]+)')
"""The folder that a name is below, the name, and the flags; ``strace -y`` names the folder."""
MEASURED = re.compile(r".*\.(stamps|events)|interrupts\.csv")
"""Files of taps and tracers are opened once more to see that they are regular files of the run, and
Rust maps those that it reads, once for each pass and piece: no more is read of them than is needed.
What Python maps of a trace it maps once."""
LOOKED_AT, PASSES, IN_PYTHON = 1, 1, 1


def opened(folder: Path, command: str) -> Counter[str]:
    """How often `command` opens each file of a run below `folder` to read it."""
    log = folder.parent / f"{command}.strace"
    subprocess.run(
        ["strace", "-f", "-qq", "-y", "-e", "trace=open,openat,openat2", "-o", log, TAILTAP,
         command, folder, "--quiet"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    found: Counter[str] = Counter()
    for base, name, flags in OPENED.findall(log.read_text("utf-8", "replace")):
        path = Path(base, name)
        reads = not {"O_DIRECTORY", "O_WRONLY", "O_RDWR", "O_CREAT"} & set(flags.split("|"))
        if reads and path.is_relative_to(folder / "runs") and path.is_file():
            found[str(path.relative_to(folder / "runs"))] += 1
    return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened") / "traced"
    folders.traced(folder)
    return folder


@pytest.mark.parametrize("command", ["explain", "report"])
def test_a_file_of_a_run_is_opened_once(command: str, traced: Path) -> None:
    found = opened(traced, command)
    read = {name: count for name, count in found.items() if not MEASURED.fullmatch(Path(name).name)}
    assert {"001-traced/run.json", "002-traced/evaluation/distribution.parquet"} <= set(read)
    assert {name: count for name, count in read.items() if count > 1} == {}
    for name, count in found.items():
        if name.endswith("interrupts.csv"):
            assert count <= LOOKED_AT + IN_PYTHON, name
        if name.endswith("trace.events"):
            assert count <= LOOKED_AT + PASSES + IN_PYTHON, name
