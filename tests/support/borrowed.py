"""Programs of Debian packages that tests call and that this machine does not install.

Installing them would change how it boots: systemd-boot puts itself on the EFI system partition when
it is installed, GRUB's and tuned's packages bring services. They are downloaded and unpacked once,
as guests' kernels are, and called in mounts that nobody else sees.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tailtap.lab.platforms.vm.kernels import unpacked

PROJECT = Path(__file__).resolve().parents[2]
SECONDS = 300
# The project and Python may be on other file systems than /, which the overlay does not show.
_ROOT = """
folder=$1 project=$2 python=$3; shift 3
mount -t tmpfs tt-test-borrowed "$folder"
cd "$folder"
mkdir upper work root
for package in "$@"; do
    for part in etc usr; do [ ! -d "$package/$part" ] || cp -a "$package/$part" upper; done
done
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work tt-test-borrowed root
for place in /proc /dev /sys; do mount --rbind $place root$place; done
for place in /boot /run /tmp /var/lib/tailtap; do
    mkdir -p root$place
    mount -t tmpfs tt-test-borrowed root$place
done
# Last: they may be below one of the places that are empty.
for place in "$project" "$python"; do
    mkdir -p "root$place"
    mount --rbind "$place" "root$place"
done
exec chroot root sh -euc "$SCRIPT"
"""


def run(folder: Path, packages: Sequence[str], script: str, stdin: str = "") -> str:
    """What `script` says, which reads `stdin`, on this machine's files and those of the packages.

    It may write anywhere but to /dev, /proc and /sys: nothing of that stays. /boot, /run, /tmp and
    tailtap's journals are empty in the beginning. `folder` is an empty one.
    """
    places = [str(folder), str(PROJECT), sys.base_prefix, *(str(unpacked(one)) for one in packages)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _ROOT, "run", *places],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
             "LANG": "C.UTF-8", "SCRIPT": script},
        input=stdin, check=False, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout
