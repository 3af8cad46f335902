"""The wheels on other systems: an older Debian, and Debian for aarch64."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import write_many
from systems import EMULATOR, System, foreign_system, old_system
from wheels import ROOT, build, gather, run

OLDEST = (2, 28)
PROGRAMS = ("mmdebstrap", "readelf", EMULATOR)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes root folders"),
    pytest.mark.skipif(
        not all(shutil.which(program) for program in PROGRAMS),
        reason="Debian packages mmdebstrap, qemu-user-static and binutils",
    ),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `make wheel` builds, by the machine."""
    found = build("wheel", tmp_path_factory.mktemp("dist"))
    return {name.stem.partition("manylinux_2_28_")[2]: name for name in found}


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def system(
    request: pytest.FixtureRequest,
    wheels: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:
    """With tailtap installed as the page says."""
    work = tmp_path_factory.mktemp(request.param)
    make = {"x86_64": old_system, "aarch64": foreign_system}[request.param]
    made = make(work / "root")
    gather(wheels[made.machine], made.machine, work / "wheels")
    (work / "wheels").rename(made.folder / "wheels")
    home = made.folder / "root"
    (home / "dist").mkdir(parents=True)
    for wheel in wheels.values():
        shutil.copy(wheel, home / "dist")
    for page in ("README.md", "docs/howto/install.md"):
        text = (ROOT / page).read_text()
        [commands] = re.findall(r"^```\w*\n([^`]*pip install dist/[^`]*)^```", text, re.MULTILINE)
        said = made.says(commands)
        assert re.search(r"^tailtap \d", said, re.MULTILINE), said
    yield made
    shutil.rmtree(work)


def newest_needed(file: Path, library: str) -> tuple[int, ...]:
    found = re.findall(rf"{library}_([0-9.]+)", run("readelf", "--version-info", "--wide", file))
    return max(tuple(int(part) for part in version.split(".")) for version in found)


def test_they_need_no_newer_glibc_than_they_say(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert set(wheels) == {"x86_64", "aarch64"}
    for machine, wheel in wheels.items():
        shutil.unpack_archive(wheel, tmp_path / machine, "zip")
        [module] = (tmp_path / machine).glob("tailtap/_core*.so")
        assert newest_needed(module, "GLIBC") <= OLDEST
        needed = set(re.findall(r"NEEDED.*\[(\w+)", run("readelf", "--dynamic", module)))
        assert needed <= {"libc", "libm", "libpthread", "libdl", "librt", "libutil", "ld"}


def evaluated(said: str) -> Any:
    return json.loads(said[said.index("{") :])


def test_an_evaluation_is_the_same(system: System) -> None:
    home = system.folder / "root"
    numbers = np.random.default_rng(1)
    sent = 10**9 + np.arange(20_000) * 10_000
    waits = (700 + numbers.exponential(5_000, sent.size)).astype(np.int64)
    kept = numbers.random(sent.size) > 0.01
    order = np.argsort((sent + waits)[kept], kind="stable")
    write_many(home / "in.pcap", sent, np.arange(sent.size))
    write_many(home / "out.pcap", (sent + waits)[kept][order], np.arange(sent.size)[kept][order])
    words = ("evaluate", "in.pcap", "out.pcap", "--json")
    here = subprocess.run(
        [Path(sys.executable).with_name("tailtap"), *words],
        check=True, capture_output=True, text=True, cwd=home,
    )  # fmt: skip
    there = evaluated(system.says("~/tailtap/bin/tailtap " + " ".join(words)))
    assert there["counts"]["matched"] == kept.sum()
    assert there == json.loads(here.stdout)


@pytest.mark.parametrize("system", ["aarch64"], indirect=True)
def test_doctor_says_what_an_emulated_program_cannot(system: System) -> None:
    said = system.says("~/tailtap/bin/tailtap doctor --json || test $? -eq 3")
    rows = {row["name"]: row["state"] for row in evaluated(said)["checks"]}
    assert rows["wire"] == rows["ip"] == rows["ethtool"] == "ok"
    assert rows["inline"] == "missing"  # what emulates programs knows no eBPF
