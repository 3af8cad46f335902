"""The printed kernel line in guests, and a guest that loses power between tuning and putting back.

A guest is booted with a misspelt line. It is tuned, lets the next boot take the line that it should
have, and loses power. It boots again with that line from its disk. Nothing else has outlived the
power cut.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from labtools import wait_for
from standing import standing

from tailtap.host.containers.domains import threads_of
from tailtap.host.knobs import KNOBS
from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.vm import VmOptions, domain, kernels

TAILTAP = str(Path(sys.executable).with_name("tailtap"))
FOR = ("--role", "vm-guest", "--cpus", "1", "--housekeeping", "0")
TYPO = "isolated_cpus=1 rcu_nocbs=1 skew_tic=1"
ASKED = ("kernel-audit", "ipi-broadcast")
"""What only the kernel itself tells, and no file of it."""
LINE_ROWS = [knob.name for knob in KNOBS if knob.name.startswith("line-")]
ENTRY = "/boot/loader/entries/_-tailtap.conf"
ON_DISK = {
    "boot/loader/loader.conf": "timeout 3\n",
    "boot/loader/entries/old.conf": "title A system\nlinux /vmlinuz\noptions quiet\n",
    "boot/vmlinuz": "a kernel\n",
    "tailtap/none": "",
}
MOUNT = """modprobe virtio_blk && mount -t ext4 /dev/vda /mnt &&
mount --bind /mnt/boot /boot && mount --bind /mnt/tailtap /var/lib/tailtap"""
STATE = """cd /proc/sys && cat kernel/random/boot_id vm/stat_interval &&
find /mnt -type f"""


class Said(NamedTuple):
    """What a guest says of itself."""

    line: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    words: list[str]


def ask(device: Dut, *options: str) -> Said:
    """The printed line, and the audit that was recorded when the guest had booted."""
    bootline = [TAILTAP, "host", "bootline", "--json", *FOR, "--with", "nohz-full", *options]
    line = device.host.run(bootline)
    words = device.host.run(["cat", "/proc/cmdline"]).stdout.split()
    return Said(json.loads(line.stdout), device.facts["tuning"]["audit"], words)


def disk_in(folder: Path) -> Path:
    """A disk with the files of a boot loader."""
    for path, text in ON_DISK.items():
        file = folder / "content" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    disk = folder / "disk"
    make = ["mke2fs", "-q", "-t", "ext4", "-d", str(folder / "content"), str(disk), "16M"]
    subprocess.run(make, check=True)
    return disk


def read_from(disk: Path, path: str) -> str:
    """A file of a disk that nobody has mounted."""
    return subprocess.check_output(
        ["debugfs", "-R", f"cat {path}", str(disk)], text=True, stderr=subprocess.DEVNULL
    )


@contextmanager
def booted(kernel: str, line: str, disk: Path) -> Iterator[Dut]:
    """A guest that has the disk. Its line is typed by hand: `dut.boot` would refuse a typo."""

    def with_disk(*words: Any) -> ElementTree.Element:
        root = described(*words)
        command_line, devices = root.find("os/cmdline"), root.find("devices")
        assert command_line is not None and devices is not None
        command_line.text = f"{command_line.text} {line}"
        made = ElementTree.SubElement(devices, "disk", type="file")
        ElementTree.SubElement(made, "driver", name="qemu", type="raw")
        ElementTree.SubElement(made, "source", file=str(disk))
        ElementTree.SubElement(made, "target", dev="vda", bus="virtio")
        return root

    described = domain.describe
    options = VmOptions.model_validate({"memory": "512 MiB", "kernel": kernel})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain, "describe", with_disk)
        with standing("vm", DutSpec((1,), options)) as (_, device):
            assert device.cpus == (1,)
            device.host.run(["sh", "-c", MOUNT])
            yield device


def judges_itself_so(device: Dut, rows: dict[str, dict[str, Any]]) -> None:
    """What was recorded of the guest is judged as the guest judges itself."""
    audit = device.host.run([TAILTAP, "host", "audit", "--json", *FOR, *rows], check=False)
    assert audit.status == 1
    told = {row["name"]: (row["answer"], row["value"]) for row in json.loads(audit.stdout)["rows"]}
    recorded = {name: (row["answer"], row["value"]) for name, row in rows.items()}
    assert {name: told.pop(name)[1] is not None for name in ASKED} == dict.fromkeys(ASKED, True)
    assert {recorded.pop(name)[1] for name in ASKED} == {None}
    assert told == recorded


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kernel", ["vanilla", "rt"])
def test_a_guest_is_tuned_and_rebooted_and_put_back(kernel: str, tmp_path: Path) -> None:
    kernels.shell()
    kernels.kernel(kernel)
    disk = disk_in(tmp_path)
    with booted(kernel, TYPO, disk) as device:
        wrong = ask(device, "--install")
        judges_itself_so(device, wrong.rows)
        device.host.run([TAILTAP, "host", "apply", "stat-interval", "timer-migration", *FOR])
        first, interval, *files = device.host.run(["sh", "-c", STATE]).stdout.split()
        # As a power cut: the guest has no time to write anything.
        os.kill(threads_of(device.facts["name"])["qemu-system-x86"], signal.SIGKILL)
        wait_for(lambda: not threads_of(device.facts["name"]), "its end")
    assert interval == "3600"
    assert len([path for path in files if path.endswith(".journal")]) > 1
    the_typo_was_found(wrong)

    text = read_from(disk, ENTRY)
    options = [
        line.removeprefix("options ") for line in text.splitlines() if line.startswith("options ")
    ]
    assert options == ["quiet", wrong.line["line"]]
    with booted(kernel, " ".join(options), disk) as device:
        right = ask(device)
        second, interval, *_ = device.host.run(["sh", "-c", STATE]).stdout.split()
        assert (second != first, interval) == (True, "1")
        told = device.host.run([TAILTAP, "host", "revert"]).stdout.splitlines()
        _, interval, *left = device.host.run(["sh", "-c", STATE]).stdout.split()
    assert set(told) == {
        f"put back {ENTRY}",
        "ended by the reboot /proc/sys/vm/stat_interval",
        "ended by the reboot /proc/sys/kernel/timer_migration",
    }
    assert interval == "1"
    assert sorted(left) == sorted(f"/mnt/{path}" for path in ON_DISK)
    the_line_was_taken(wrong.line["line"], wrong, right)


def the_typo_was_found(wrong: Said) -> None:
    assert set(TYPO.split()) <= set(wrong.words)
    answers = {name: row["answer"] for name, row in wrong.rows.items()}
    assert answers["isolated-cpus"] == answers["skew-tick"] == answers["line-words"] == "not-met"
    assert answers["rcu-nocbs"] == "met"
    assert "isolated_cpus" in wrong.rows["line-words"]["value"]
    assert "skew_tic" in wrong.rows["line-words"]["value"]
    assert any("isolated_cpus" in clause for clause in wrong.line["wrong"])
    states = {row["knob"]: row["state"] for row in wrong.line["words"]}
    assert states["isolated-cpus"] == "missing"
    assert states["rcu-nocbs"] == "there"


def the_line_was_taken(line: str, wrong: Said, right: Said) -> None:
    assert "isolcpus=domain,managed_irq,1" in line.split()
    assert "nohz_full=1" in line.split(), "Debian's kernels are built with NO_HZ_FULL"
    assert set(line.split()) <= set(right.words)
    asked = {row["knob"] for row in wrong.line["words"]}
    assert {name: right.rows[name]["answer"] for name in asked} == dict.fromkeys(asked, "met")
    assert {right.rows[name]["answer"] for name in LINE_ROWS} == {"met"}
    assert {row["state"] for row in right.line["words"] if row["knob"] in asked} == {"there"}
    assert right.line["wrong"] == []
