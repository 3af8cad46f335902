"""`tailtap doctor` on a machine that has little more than a minimal Debian."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from program import TAILTAP

from tailtap.remote.local import SYSTEM_PATH

PACKAGES = {
    "container": ("lxc-start", "lxc"),
    "crun": ("crun", "crun"),
    "runc": ("runc", "runc"),
    "podman": ("podman", "podman"),
    "vm": ("virt-qemu-run", "libvirt-daemon"),
    "testpmd": ("dpdk-testpmd", "dpdk-dev"),
}
"""By platform or forwarder: a program that it needs, and the package that brings it."""


def test_doctor_names_the_package_of_each_platform_and_forwarder() -> None:
    """What is there is hidden from it: programs, and /etc/protocols of the package netbase."""
    programs = [
        shutil.which(program, path=f"/usr/bin:{SYSTEM_PATH}") for program, _ in PACKAGES.values()
    ]
    hidden = [*filter(None, programs), *filter(Path.exists, [Path("/etc/protocols")])]
    script = "".join(f"mount --bind /dev/null {one}\n" for one in hidden)
    script += f"exec {TAILTAP} doctor --json"
    done = subprocess.run(["unshare", "--mount", "sh", "-ec", script], capture_output=True,
                          text=True, check=False, timeout=120)  # fmt: skip
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]
              if check["area"] in ("platforms", "forwarders")}  # fmt: skip
    assert checks["kernel-route"]["state"] == "ok", checks["kernel-route"]
    for name, (_, package) in PACKAGES.items():
        assert checks[name]["state"] == "missing", checks[name]
        assert "apt-get install " in checks[name]["remedy"], checks[name]
        assert package in checks[name]["remedy"].replace(",", "").split(), checks[name]
