"""The kernel that runs, compared with the one that an experiment asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.lab.platforms.boot import check_host_kernel, check_kernel, running_kernel

VANILLA = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)"
REALTIME = "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)"


def machine(root: Path, version: str = VANILLA) -> Path:
    for path, text in {
        "proc/sys/kernel/osrelease": "6.1.0-37-amd64",
        "proc/sys/kernel/version": version,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


def refusal(wanted: str, root: Path) -> str:
    with pytest.raises(MachineError) as caught:
        check_host_kernel(wanted, root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_this_machines_kernel_has_a_name() -> None:
    assert running_kernel().kind in {"vanilla", "rt"}
    assert check_host_kernel(None)["release"]


def test_a_vanilla_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert check_host_kernel("vanilla", root) == {
        "kind": "vanilla",
        "release": "6.1.0-37-amd64",
        "version": VANILLA,
        "realtime": False,
    }
    assert refusal("rt", root) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not a real-time kernel: boot one, "
        "such as that of the Debian package linux-image-rt-amd64, or take dut.platform: vm, which "
        "brings its own"
    )


def test_a_real_time_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path, REALTIME)
    assert check_host_kernel("rt", root)["realtime"] is True
    assert refusal("vanilla", root).endswith("not a vanilla one: boot one without PREEMPT_RT")


def test_real_time_is_also_told_by_sysfs(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/kernel").mkdir(parents=True)
    (root / "sys/kernel/realtime").write_text("1\n")
    assert check_host_kernel("rt", root)["kind"] == "rt"


def test_a_tuning_is_no_kernel() -> None:
    assert check_kernel("vanilla") == "vanilla"
    with pytest.raises(ValueError, match=r"write dut\.boot: 'nohz_full=\{cpus\} rcu_nocbs"):
        check_kernel("nohz")


def test_versions_and_beginnings_of_them(tmp_path: Path) -> None:
    root = machine(tmp_path)
    for wanted in ("6.1.0-37-amd64", "6.1.0", "6.1", "6"):
        check_host_kernel(wanted, root)
    assert refusal("6.1.0-3", root) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not 6.1.0-3: boot that one, or "
        "take dut.platform: vm, which brings its own"
    )


def test_images(tmp_path: Path) -> None:
    root = machine(tmp_path)
    image = bytearray(0x400)
    image[0x202:0x206] = b"HdrS"
    image[0x20E:0x210] = (0x300 - 0x200).to_bytes(2, "little")
    for name, release in (("same", b"6.1.0-37-amd64"), ("other", b"6.12.1")):
        image[0x300:0x340] = (release + b" (someone@somewhere) #1 SMP").ljust(0x40, b"\0")
        (root / name).write_bytes(image)
    check_host_kernel("/same", root)
    assert "not 6.12.1: boot that one" in refusal("/other", root)
    (root / "text").write_text("no image")
    assert refusal("/text", root) == "dut.kernel: /text is no kernel image"
    assert refusal("/none", root) == "dut.kernel: cannot read /none: No such file or directory"
