"""A virtual machine's own disk: its program forwards in the guest, and it is not written to."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from labtools import TAILTAP, Machine, record, was_made, write_experiment

PROGRAM = Path(__file__).parents[1] / "support/image/program.c"
EXPERIMENT = """\
name: disk
dut:
  platform: vm
  forwarder: external
  cpus: [1]
  memory: 512 MiB
  image: {disk}
  options: {{command: "{command} forward {{ingress}} {{egress}}"}}
traffic: {{rate: 50 pkt/s, duration: 2 s, warm_up: 0 s, cpu: 0, slip_limit: 5 s}}
"""
PACKETS = 100
SECTORS, FIRST = 98304, 16384
"""Of the disk, and the first of its second partition; of 512 bytes."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("mke2fs") is None, reason="needs mke2fs"),
]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small partition for booting, and the root file system, as on most disks."""
    folder = tmp_path_factory.mktemp("disk")
    for name in ("bin", "etc"):
        (folder / "root" / name).mkdir(parents=True)
    subprocess.run(
        ["gcc", "-static", "-O2", "-o", folder / "root/bin/program", PROGRAM], check=True
    )
    made = folder / "disk.raw"
    with made.open("wb") as file:
        file.truncate(SECTORS * 512)
        file.seek(446)  # the table of an MBR: two partitions, by their first sector and their size
        for first, size in ((2048, 8192), (FIRST, SECTORS - FIRST)):
            file.write(struct.pack("<B3xB3xII", 0, 0x83, first, size))
        file.seek(510)
        file.write(b"\x55\xaa")
    offset, blocks = FIRST * 512, (SECTORS - FIRST) // 2
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-E", f"offset={offset}", "-d",
         folder / "root", made, str(blocks)], check=True,
    )  # fmt: skip
    return made


def test_a_program_of_the_disk_forwards(machine: Machine, disk: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(disk.read_bytes()).digest()
    path = write_experiment(tmp_path, EXPERIMENT.format(disk=disk, command="program"))
    out = tmp_path / "out"
    words = ("run", str(path), "--out", str(out))
    done = machine.run(*TAILTAP, *words, seconds=600)
    assert was_made(done), done.stderr
    [run] = (out / "runs").iterdir()
    counts = json.loads((run / "evaluation/evaluation.json").read_text())["counts"]
    assert (counts["matched"], counts["lost"]) == (PACKETS, 0)
    assert record(run)["platform"]["disk"] == {"file": str(disk), "root": "/dev/vda2"}
    assert hashlib.sha256(disk.read_bytes()).digest() == before
