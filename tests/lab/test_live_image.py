"""Live images of the same packages, keys and time, made twice."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from forms import fits

from tailtap.lab.platforms.vm.kernels import kernel, shell
from tailtap.measure.testbed.image import ABOUT, HOST_KEY, make_image, write_cpio, write_key_archive

EPOCH = 1_700_000_000


def entries(folder: Path, initrd: Path) -> dict[str, tuple[str, str]]:
    root = folder / "root"
    root.mkdir()
    words = f"zstd -dc '{initrd}' | cpio --quiet -idm --no-absolute-filenames"
    subprocess.run(["sh", "-c", words], cwd=root, check=True)
    listing = ["find", ".", "-printf", r"%p\t%M %U %G %T@ %l\n"]
    told = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout
    found: dict[str, tuple[str, str]] = {}
    for line in told.splitlines():
        name, _, about = line.partition("\t")
        path = root / name
        plain = path.is_file() and not path.is_symlink()
        found[name] = about, hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
    shutil.rmtree(root)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    not (shutil.which("mmdebstrap") and shutil.which("cpio")),
    reason="needs the Debian packages mmdebstrap and cpio",
)
def test_the_same_time_gives_the_same_bytes(tmp_path: Path) -> None:
    keys = tmp_path / "keys.pub"
    keys.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0X nobody\n")
    first, second = tmp_path / "first", tmp_path / "second"
    one = make_image(first, keys=keys, epoch=EPOCH)
    fits(json.loads((first / ABOUT).read_text()))
    second.mkdir()
    for name in (HOST_KEY, f"{HOST_KEY}.pub"):
        shutil.copy(first / name, second / name)
    other = make_image(second, keys=keys, epoch=EPOCH)
    assert one.kernel.read_bytes() == other.kernel.read_bytes()
    assert one.key.read_bytes() == other.key.read_bytes()
    assert one.key.stat().st_mode & 0o077 == 0
    assert not [name for name in entries(tmp_path, one.initrd) if "ssh_host_" in name]
    if one.initrd.read_bytes() != other.initrd.read_bytes():
        before, after = (entries(tmp_path, image.initrd) for image in (one, other))
        names = sorted({*before, *after})
        pytest.fail(str([name for name in names if before.get(name) != after.get(name)]))


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
