"""The kernel that runs, compared with the one that an experiment asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.errors import MachineError
from tailtap.platform.kernel import check_host_kernel, running_kernel

VANILLA = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)"
REALTIME = "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)"


def machine(
    root: Path, *, version: str = VANILLA, nohz: str = " (null)", isolated: str = ""
) -> Path:
    for path, text in {
        "proc/sys/kernel/osrelease": "6.1.0-37-amd64",
        "proc/sys/kernel/version": version,
        "sys/devices/system/cpu/nohz_full": nohz,
        "sys/devices/system/cpu/isolated": isolated,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


def refusal(wanted: str, root: Path, cpus: tuple[int, ...] = (1,)) -> str:
    with pytest.raises(MachineError) as caught:
        check_host_kernel(wanted, cpus, root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_this_machines_kernel_has_a_name() -> None:
    assert running_kernel().kind([0]) in {"vanilla", "rt", "nohz"}
    assert check_host_kernel(None, [0])["release"]


def test_a_vanilla_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert check_host_kernel("vanilla", [1], root)["kind"] == "vanilla"
    assert refusal("rt", root) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not a real-time kernel: boot one, "
        "such as that of the Debian package linux-image-rt-amd64, or take dut.platform: vm, which "
        "brings its own"
    )
    assert refusal("nohz", root, (1, 2)) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not a tickless one: boot "
        "nohz_full=1,2 isolcpus=1,2 rcu_nocbs=1,2 on the command line, on a kernel with "
        "CONFIG_NO_HZ_FULL"
    )


def test_a_real_time_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path, version=REALTIME)
    assert check_host_kernel("rt", [1], root)["realtime"] is True
    assert refusal("vanilla", root).endswith("not a vanilla one: boot one without PREEMPT_RT")


def test_real_time_is_also_told_by_sysfs(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/kernel").mkdir()
    (root / "sys/kernel/realtime").write_text("1\n")
    assert check_host_kernel("rt", [1], root)["kind"] == "rt"


def test_a_tickless_kernel_is_one_for_its_cpus_only(tmp_path: Path) -> None:
    root = machine(tmp_path, nohz="1-3", isolated="1-3")
    assert check_host_kernel("nohz", [1, 3], root)["kind"] == "nohz"
    assert refusal("vanilla", root).endswith("boot it without nohz_full and isolcpus")
    assert check_host_kernel("vanilla", [0], root)["kind"] == "vanilla"
    root = machine(tmp_path, nohz="1-3")
    assert "boot isolcpus=1 rcu_nocbs=1 on the command line" in refusal("nohz", root)


def test_versions_and_beginnings_of_them(tmp_path: Path) -> None:
    root = machine(tmp_path)
    for wanted in ("6.1.0-37-amd64", "6.1.0", "6.1", "6"):
        check_host_kernel(wanted, [1], root)
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
    check_host_kernel("/same", [1], root)
    assert "not 6.12.1: boot that one" in refusal("/other", root)
    (root / "text").write_text("no image")
    assert refusal("/text", root) == "dut.kernel: /text is no kernel image"
    assert refusal("/none", root) == "dut.kernel: cannot read /none: No such file or directory"
