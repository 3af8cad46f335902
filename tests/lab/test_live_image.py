"""Live images of the same packages, keys and time, made twice."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from forms import fits

from tailtap.measure.testbed.image import ABOUT, HOST_KEY, make_image

EPOCH = 1_700_000_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not (shutil.which("mmdebstrap") and shutil.which("cpio")),
        reason="needs the Debian packages mmdebstrap and cpio",
    ),
]


def entries(folder: Path, initrd: Path) -> dict[str, tuple[str, str]]:
    """By path: what ls says of each file, and the SHA-256 of its content."""
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
