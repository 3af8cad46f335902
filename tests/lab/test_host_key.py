"""The archive with a host's key, before an initial RAM disk: a kernel unpacks both."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tailtap.lab.platforms.vm.kernels import kernel, shell
from tailtap.measure.testbed.image import HOST_KEY, write_cpio, write_key_archive

EMULATOR = "qemu-system-x86_64"
SECONDS = 240
INIT = f"""#!/bin/busybox sh
/bin/busybox ls -ln /etc/ssh
/bin/busybox cat /etc/ssh/{HOST_KEY}
/bin/busybox poweroff -f
"""


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(
    not (shutil.which(EMULATOR) and shutil.which("zstd")),
    reason="needs the Debian packages qemu-system-x86 and zstd",
)
def test_a_kernel_unpacks_the_key_and_then_the_image(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("bin", "etc/ssh"):
        (root / name).mkdir(parents=True)
    shutil.copy2(shell(), root / "bin/busybox")
    (root / "init").write_text(INIT)
    for path in (root / "bin/busybox", root / "init"):
        path.chmod(0o755)
    with tarfile.open(tmp_path / "root.tar", "w") as content:
        content.add(root, ".")
    with (tmp_path / "root.tar").open("rb") as source, (tmp_path / "image").open("wb") as target:
        write_cpio(source, target)
    squeezed = subprocess.run(
        ["zstd", "-q", "--stdout", str(tmp_path / "image")], capture_output=True, check=True
    )
    (tmp_path / "key").write_text("the key of the host\n")
    write_key_archive(tmp_path / "key", tmp_path / "key.cpio", 1_700_000_000)
    both = tmp_path / "both"
    both.write_bytes((tmp_path / "key.cpio").read_bytes() + squeezed.stdout)
    command = [EMULATOR, "-accel", "tcg", "-cpu", "max", "-m", "512", "-nographic", "-no-reboot"]
    command += ["-kernel", str(kernel("vanilla").image), "-initrd", str(both)]
    command += ["-append", "console=ttyS0 quiet panic=-1"]
    said = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
    ).stdout.decode(errors="replace")
    assert "the key of the host" in said, said
    [line] = [one for one in said.splitlines() if one.rstrip().endswith(HOST_KEY)]
    assert line.split()[:4] == ["-rw-------", "1", "0", "0"]
