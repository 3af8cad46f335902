"""DuTs in virtual machines: what boots, what runs inside, and that nothing of them stays.

Each boot takes some ten seconds where QEMU emulates the CPU (TCG), so tests share machines.
`test_matrix` runs the forwarders in one. A guest that loses power between tuning and putting back
boots with the printed kernel line from its disk: nothing else has outlived the power cut.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from labtools import (
    PATIENCE_SECONDS,
    Machine,
    all_came,
    measured,
    turn_for_huge_pages,
    wait_for,
    write_experiment,
)
from standing import standing

from tailtap.base.errors import MachineError
from tailtap.host.containers.domains import DomainFolder, is_running, threads_of
from tailtap.host.knobs import KNOBS
from tailtap.lab.platforms import Dut, DutSpec
from tailtap.lab.platforms.vm import VmOptions, domain
from tailtap.lab.platforms.vm.kernels import remembered
from tailtap.lab.topology.graphs import DUT_EGRESS, DUT_INGRESS, smallest
from tailtap.lab.topology.lab import Lab

BOOT_SECONDS = 600
EXPERIMENT = """\
name: vm
dut: {platform: vm, cpus: [1], memory: 512 MiB}
traffic: {rate: 2 kpkt/s, duration: 1 s, warm_up: 0 s, cpu: 0}
"""
pytestmark = pytest.mark.usefixtures("guest_kernels")


def spec(cpus: tuple[int, ...], **options: object) -> DutSpec[VmOptions]:
    return DutSpec(cpus, VmOptions.model_validate({"memory": "512 MiB", **options}))


@pytest.fixture(scope="module")
def shared() -> Iterator[Dut]:
    """A machine with the real-time kernel, a tuned boot, huge pages and one CPU more than usual.

    As long as it is there, nobody else reserves huge pages.
    """
    options = {"kernel": "rt", "boot": "tailtap.test={cpus}", "huge_pages": True}
    asked = replace(spec((0, 1), **options), tuned_boot=True)
    with turn_for_huge_pages(), standing("vm", asked) as (_, device):
        yield device


def test_it_is_what_was_asked_for(shared: Dut) -> None:
    facts = shared.facts
    assert facts["kernel"]["kind"] == "rt"
    assert "PREEMPT_RT" in shared.host.run(["uname", "-a"]).stdout
    assert facts["boot"]["command_line"].endswith("tailtap.test=1,2")
    assert facts["boot"]["command_line"] == shared.host.run(["cat", "/proc/cmdline"]).stdout.strip()
    assert " isolcpus=domain,managed_irq,1-2 " in facts["boot"]["command_line"]
    boot = facts["boot"]
    assert boot["isolated"] == boot["rcu_nocbs"] == (1, 2)
    assert (boot["irqaffinity"], boot["nohz_full"], boot["unknown"]) == ((0,), (), ())
    assert shared.host.run(["uname", "-r"]).stdout.strip() == facts["kernel"]["release"]
    assert facts["cpus_online"] == "0-2"
    assert 400 << 20 < facts["memory"] < 512 << 20 <= facts["huge_pages"]
    assert shared.cpus == (1, 2)
    kind = {"kvm": "KVM", "tcg": "TCG"}[facts["accelerator"]]
    assert facts["vcpu_pinning"][f"CPU 1/{kind}"] == "0"
    assert facts["vcpu_pinning"][f"CPU 2/{kind}"] == "1"
    links = json.loads(shared.host.run(["ip", "-j", "link"]).stdout)
    assert {link["ifname"] for link in links} == {"lo", DUT_INGRESS, DUT_EGRESS}
    known = remembered()
    assert known is not None
    emulated = [warning.code for warning in shared.warnings] == ["emulated"]
    assert emulated == known.emulated


def test_the_recommended_words_do_what_they_are_for(shared: Dut) -> None:
    tuning = shared.facts["tuning"]
    assert (tuning["role"], tuning["cpus"], tuning["housekeeping"]) == ("vm-guest", "1-2", "0")
    judged = {name: row["answer"] for name, row in tuning["audit"].items()}
    words = {word.partition("=")[0] for word in shared.facts["boot"]["command_line"].split()}
    assert {"skew_tick", "irqaffinity", "nosoftlockup", "rcutree.kthread_prio"} <= words
    for name in ("isolated-cpus", "rcu-nocbs", "interrupt-default", "skew-tick", "soft-watchdog",
                 "rcu-priority", "kernel-audit", "line-words", "line-contradictions"):  # fmt: skip
        assert judged[name] == "met", tuning["audit"][name]
    assert "not-met" not in {judged[name] for name in judged.keys() - tuning["left"].keys()}
    # What the kernel reads the time from is not known before it runs.
    assert "clocksource" in tuning["left"]["tsc-reliable"]
    assert tuning["audit"]["nohz-full"]["answer"] == "not-applicable"
    assert tuning["audit"]["nohz-full"]["why"]


def test_the_tracer_follows_an_older_kernel(shared: Dut) -> None:
    """Linux 6.1 does not tell which function another CPU calls; it is said, the rest is there."""
    host = shared.host
    command = [*host.program, "trace", "--cpus", "1", "--out", "/run/trace", "--for", "500 ms"]
    said = host.run([*command, "--mode", "full", "--records", "16384", "--json"]).stdout
    trace = json.loads(said.splitlines()[-1])["trace"]
    assert trace["kernel"] == shared.facts["kernel"]["release"]
    missing = {line.partition(":")[0] for line in trace["missing"]}
    assert "csd_function_entry" in missing
    assert not missing & set(trace["hooks"])
    assert {"sched_switch", "softirq_exit", "local_timer_exit", "irq_handler_exit"} < set(
        trace["hooks"]
    )
    assert trace["kinds"]["vector"] > 0
    assert sum(trace["kinds"].values()) == trace["records"]
    assert trace["lost"] == {"1": 0}


@pytest.mark.slow
def test_kill_nine_then_clean(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    words = ("run", str(path), "--out", str(tmp_path / "out"))
    with machine.held(tmp_path, *words, patience=BOOT_SECONDS) as running:
        [name] = machine.run("ls", "/run/tailtap/vm").stdout.split()
        assert ("domain", name) in machine.cleaned("kept") and machine.cleaned() == []
        running.kill()
    cleaned = machine.tailtap("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"removing domain {name}" in cleaned.stdout
    assert machine.namespaces() == []
    assert machine.run("ls", "/run/tailtap/vm").stdout == ""
    assert f"guest={name}" not in subprocess.check_output(["ps", "-ef"], text=True)
    assert machine.tailtap("clean").stdout == "nothing to remove\n"


def test_a_machine_without_its_libvirt_is_found_and_ended() -> None:
    """What is left when both tailtap and libvirt were killed."""
    with Lab(smallest()) as lab:
        name = lab.name_of("dut")
        change = DomainFolder(name)
        entry = lab.journal.enter(change)
        command = ["qemu-system-x86_64", "-name", f"guest={name},debug-threads=on", "-S"]
        command += ["-machine", "none", "-display", "none", "-nodefaults"]
        orphan = subprocess.Popen(command)
        try:
            wait_for(lambda: is_running(name), "the process")
            assert change.pending(entry.old)
            assert change not in DomainFolder.existing()
            lab.journal.undo(entry, change)
            assert orphan.wait(timeout=PATIENCE_SECONDS) in (0, -signal.SIGTERM)
            assert not change.pending(entry.old)
        finally:
            orphan.kill()
            orphan.wait()


@pytest.mark.slow
def test_a_guest_that_does_not_boot_says_so() -> None:
    asked = spec((1,), boot="rdinit=/none root=/dev/none")
    with (
        pytest.raises(MachineError, match="ended while it booted") as caught,
        standing("vm", asked),
    ):
        pass
    assert "Kernel panic" in str(caught.value)
    assert "\n" not in str(caught.value)


PROGRAM = Path(__file__).parents[1] / "support/image/program.c"
ON_DISK = """\
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
DISK_PACKETS = 100
SECTORS, FIRST = 98304, 16384
"""Of the disk, and the first of its second partition; of 512 bytes."""


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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("mke2fs") is None, reason="needs mke2fs")
def test_a_program_of_the_disk_forwards(machine: Machine, disk: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(disk.read_bytes()).digest()
    text = ON_DISK.format(disk=disk, command="program")
    made = measured(tmp_path, text, machine=machine, seconds=600)
    assert all_came(made.run, DISK_PACKETS)
    assert made.record["platform"]["disk"] == {"file": str(disk), "root": "/dev/vda2"}
    assert hashlib.sha256(disk.read_bytes()).digest() == before


WITHIN = str(Path(sys.executable).with_name("tailtap"))
FOR = ("--role", "vm-guest", "--cpus", "1", "--housekeeping", "0")
TYPO = "isolated_cpus=1 rcu_nocbs=1 skew_tic=1"
ASKED = ("kernel-audit", "ipi-broadcast")
"""What only the kernel itself tells, and no file of it."""
LINE_ROWS = [knob.name for knob in KNOBS if knob.name.startswith("line-")]
ENTRY = "/boot/loader/entries/_-tailtap.conf"
LOADER_FILES = {
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
    line: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    words: list[str]


def ask(device: Dut, *options: str) -> Said:
    """The printed line, and the audit that was recorded when the guest had booted."""
    bootline = [
        WITHIN,
        "host",
        "bootline",
        "--json",
        *FOR,
        "--with",
        "nohz-full",
        *options,
    ]
    line = device.host.run(bootline)
    words = device.host.run(["cat", "/proc/cmdline"]).stdout.split()
    return Said(json.loads(line.stdout), device.facts["tuning"]["audit"], words)


def disk_in(folder: Path) -> Path:
    for path, text in LOADER_FILES.items():
        file = folder / "content" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    disk = folder / "disk"
    make = ["mke2fs", "-q", "-t", "ext4", "-d", str(folder / "content"), str(disk), "16M"]
    subprocess.run(make, check=True)
    return disk


def read_from(disk: Path, path: str) -> str:
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
    audit = device.host.run([WITHIN, "host", "audit", "--json", *FOR, *rows], check=False)
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
    disk = disk_in(tmp_path)
    with booted(kernel, TYPO, disk) as device:
        wrong = ask(device, "--install")
        judges_itself_so(device, wrong.rows)
        device.host.run([WITHIN, "host", "apply", "stat-interval", "timer-migration", *FOR])
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
        told = device.host.run([WITHIN, "host", "revert"]).stdout.splitlines()
        _, interval, *left = device.host.run(["sh", "-c", STATE]).stdout.split()
    assert set(told) == {
        f"put back {ENTRY}",
        "ended by the reboot /proc/sys/vm/stat_interval",
        "ended by the reboot /proc/sys/kernel/timer_migration",
    }
    assert interval == "1"
    assert sorted(left) == sorted(f"/mnt/{path}" for path in LOADER_FILES)
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
