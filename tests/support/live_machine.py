"""A machine that boots as servers do: from its network, with iPXE of its card's ROM, or else from a
disk with GRUB, which has a live image.

QEMU emulates it. ssh reaches it on the loopback interface. It has four more cards and two cables:
between enp0s2 and enp0s4, and between enp0s3 and enp0s5.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from children import child, free_port
from emulated_cards import EMULATOR
from grub_disk import grub_disk

from tailtap.measure.testbed.image import HOST_KEY, Image, make_image

BOOT_SECONDS = 400.0
EPOCH = 1_700_000_000
USUAL = "console=ttyS0 ip=enp0s1:dhcp panic=0"
ROM = "/usr/lib/ipxe/qemu/pxe-e1000.rom"
CLIENT = """\
Host dut
    HostName 127.0.0.1
    Port {port}
    User root
    IdentityFile {folder}/login
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking accept-new
"""
SCRIPT = """\
#!ipxe
chain http://10.0.2.2:{port}/dut.ipxe || exit
"""


@dataclass(frozen=True)
class Live:
    """The machine, and what its controller needs."""

    folder: Path
    image: Image
    realtime: Image
    """The same with the last one of its kernels."""
    http_port: int
    """Where its iPXE looks for a script before it boots its default."""

    def ssh(self, command: str, seconds: float = 15.0) -> str | None:
        """What a command on it prints; None when it does not answer or the command fails."""
        words = ["ssh", "-F", str(self.folder / "ssh_config"), "-o", "BatchMode=yes"]
        words += ["-o", "ConnectTimeout=5", "dut", command]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=seconds, check=False
            )
            return done.stdout if done.returncode == 0 else None
        return None

    def monitor(self, command: str) -> list[str]:
        """A command that has QEMU do something; it prints "on"."""
        return [sys.executable, str(self.folder / "monitor.py"), command]


MONITOR = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as monitor:
    monitor.connect({path!r})
    said = b""
    for command in [None, sys.argv[1]]:
        if command:
            monitor.sendall(command.encode() + b"\\n")
            said = b""
        while not said.endswith(b"(qemu) "):
            said += monitor.recv(4096)
print("on" if b"VM status: " not in said or b"running" in said else "off")
"""


def _with_one_key(folder: Path, kernels: Sequence[str]) -> Iterator[str]:
    """The kernels; the host key of the first image is that of the others."""
    for kernel in kernels:
        if kernel != kernels[0]:
            (folder / kernel).mkdir()
            shutil.copy2(folder / kernels[0] / HOST_KEY, folder / kernel / HOST_KEY)
        yield kernel


@contextlib.contextmanager
def live_machine(
    folder: Path, kernels: Sequence[str] = ("vanilla", "rt"), suite: str = "bookworm"
) -> Iterator[Live]:
    """It has booted its default, the first of its kernels, from its disk."""
    make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "login")]
    subprocess.run(make_key, check=True)
    image, *others = [
        make_image(
            folder / kernel, keys=folder / "login.pub", kernel=kernel, suite=suite,
            include=["grub-common", "lxc"], epoch=EPOCH,
        )
        for kernel in _with_one_key(folder, kernels)
    ]  # fmt: skip
    port, ours = free_port(), free_port()
    (folder / "ssh_config").write_text(CLIENT.format(port=port, folder=folder))
    (folder / "monitor.py").write_text(MONITOR.format(path=str(folder / "monitor")))
    (folder / "tftp").mkdir()
    (folder / "tftp/default.ipxe").write_text(SCRIPT.format(port=ours))
    disk = grub_disk(folder, image, USUAL)
    command = ["setpriv", "--pdeathsig", "KILL", "--", "nice", "-n", "-10", str(EMULATOR)]
    command += ["-machine", "q35,graphics=off", "-accel", "tcg,thread=multi", "-cpu", "max"]
    command += ["-smp", "2", "-m", "2560", "-nodefaults", "-display", "none"]
    network = f"user,id=control,hostfwd=tcp:127.0.0.1:{port}-:22"
    command += ["-netdev", f"{network},tftp={folder / 'tftp'},bootfile=default.ipxe"]
    command += ["-device", f"e1000,netdev=control,addr=1,bootindex=1,romfile={ROM}"]
    command += ["-drive", f"file={disk},format=raw,if=none,id=disk"]
    command += ["-device", "virtio-blk-pci,drive=disk,bootindex=2,addr=6"]
    for number in range(2, 6):
        command += ["-netdev", f"hubport,id=cable{number},hubid={number % 2}"]
        command += ["-device", f"e1000,netdev=cable{number},addr={number},romfile="]
    command += ["-serial", f"file:{folder / 'console.log'}"]
    command += ["-monitor", f"unix:{folder / 'monitor'},server=on,wait=off"]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "qemu.log").open("wb"))
        running = stack.enter_context(child(command, stdout=log, stderr=log))
        live = Live(folder, image, others[-1] if others else image, ours)
        deadline = time.monotonic() + BOOT_SECONDS
        while live.ssh("true") is None:
            assert running.poll() is None, (folder / "qemu.log").read_text()
            assert time.monotonic() < deadline, (folder / "console.log").read_text()[-2000:]
            time.sleep(1)
        yield live
