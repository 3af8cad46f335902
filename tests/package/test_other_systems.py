"""The wheels on other systems: an older Debian, and Debian for aarch64."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import write_many
from systems import EMULATOR, FOLDER, System
from wheels import ROOT, build, gather, run

OLDEST = (2, 28)
PROGRAMS = ("readelf", "qemu-system-aarch64", EMULATOR)
TAILTAP = "~/tailtap/bin/tailtap"
# The tap itself forwards from one place to the other: nothing else could lose packets.
MEASURE = f"""
for pair in 'g0 i0' 'o0 e0'; do
    set -- $pair
    ip link add $1 type veth peer name $2
    ip link set $1 up; ip link set $2 up
done
{TAILTAP} tap in=i0:o0 out=e0:drop --write '/tmp/{{link}}.stamps' --json > tap.json &
until [ -s tap.json ]; do kill -0 $!; sleep 0.1; done
{TAILTAP} generate g0 --rate '200 pkt/s' --duration '2 s' --json
sleep 0.5; kill $!; wait $!
cat tap.json
{TAILTAP} evaluate /tmp/in.stamps /tmp/out.stamps --json --quiet
{TAILTAP} trace --cpus 1 --out trace --for '2 s' --json
"""
SECONDS = 3_600
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.skipif(os.geteuid() != 0, reason="enters root folders"),
    pytest.mark.skipif(
        not FOLDER.is_dir() or not all(shutil.which(program) for program in PROGRAMS),
        reason="run `make other-systems`; the Debian package binutils",
    ),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `make wheel` builds, by the machine."""
    found = build("wheel", tmp_path_factory.mktemp("dist"))
    return {name.stem.partition("manylinux_2_28_")[2]: name for name in found}


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def system(request: pytest.FixtureRequest, wheels: dict[str, Path]) -> System:
    """With tailtap installed as the pages say."""
    made = System(request.param)
    home = made.folder / "root"
    for old in (home, made.folder / "wheels"):
        shutil.rmtree(old, ignore_errors=True)
    gather(wheels[made.machine], made.machine, made.folder / "wheels")
    (home / "dist").mkdir(parents=True)
    for wheel in wheels.values():
        shutil.copy(wheel, home / "dist")
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/howto/install.md")]
    shown = r"^```\w*\n([^`]*pip install dist/[^`]*)^```"
    [commands] = {found for page in pages for found in re.findall(shown, page, re.MULTILINE)}
    said = made.says(commands)
    assert re.search(r"^tailtap \d", said, re.MULTILINE), said
    return made


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


def printed(said: str) -> Any:
    return json.loads(said[said.index("{") :])


def test_an_evaluation_and_its_report_are_the_same(system: System, tmp_path: Path) -> None:
    home = system.folder / "root"
    numbers = np.random.default_rng(1)
    sent = 10**9 + np.arange(20_000) * 10_000
    waits = (700 + numbers.exponential(5_000, sent.size)).astype(np.int64)
    kept = numbers.random(sent.size) > 0.01
    order = np.argsort((sent + waits)[kept], kind="stable")
    write_many(home / "in.pcap", sent, np.arange(sent.size))
    write_many(home / "out.pcap", (sent + waits)[kept][order], np.arange(sent.size)[kept][order])
    words = ("evaluate", "in.pcap", "out.pcap", "--json", "--out")
    here = subprocess.run(
        [Path(sys.executable).with_name("tailtap"), *words, tmp_path / "out"],
        check=True, capture_output=True, text=True, cwd=home,
    )  # fmt: skip
    there = printed(system.says(f"{TAILTAP} {' '.join(words)} out"))
    assert there["counts"]["matched"] == kept.sum()
    assert there["latency_ns"]["max"] == waits[kept].max()
    assert there == json.loads(here.stdout)
    system.says(f"{TAILTAP} report out")
    page = (home / "out/report/index.html").read_text()
    assert "<svg" in page
    assert f"{kept.sum():,}".replace(",", "\u202f") in page  # the packets that came


def test_help_and_doctor_say_what_works(system: System) -> None:
    assert "evaluate" in system.says(f"{TAILTAP} --help")
    said = system.says(f"{TAILTAP} doctor --json || test $? -eq 3")
    rows = {row["name"]: row["state"] for row in printed(said)["checks"]}
    assert rows["wire"] == rows["ip"] == rows["ethtool"] == "ok"
    # What emulates programs knows no eBPF.
    able = "missing" if system.machine == "aarch64" else "ok"
    assert rows["inline"] == rows["tracer"] == able


@pytest.mark.parametrize("system", ["aarch64"], indirect=True)
def test_on_an_arm64_kernel_stamps_match(system: System, tmp_path: Path) -> None:
    """All packets are stamped by eBPF programs, on a whole machine that is emulated."""
    said = system.booted(MEASURE, tmp_path, SECONDS)
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    generator, _, taps, evaluation, _, traced = found
    assert generator["sent"] == 400
    for name in ("in", "out"):
        assert taps["links"][name]["seen"] == taps["links"][name]["stored"] == 400
    assert evaluation["counts"]["matched"] == 400
    assert evaluation["latency_ns"]["min"] > 0
    assert traced["trace"]["records"] > 0
    assert traced["trace"]["lost"] == {"1": 0}
