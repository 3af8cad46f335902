"""A container's port reached through a netkit, in a guest whose kernel has that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from standing import standing

from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.remote.guest import GuestHost

TAILTAP = str(Path(sys.executable).with_name("tailtap"))
SOURCES = Path(__file__).parents[2] / "scripts/debian-sources.sh"
KERNEL = re.compile(r"^Depends: (linux-image-6\.(?:[7-9]|[1-9][0-9])\.\S+-amd64)", re.MULTILINE)
EXPERIMENT = """\
name: netkit
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1], over: netkit}
traffic: {rate: 20 pkt/s, duration: 5 s, warm_up: 0 s, cpu: 2, slip_limit: 10 s}
"""
PACKETS = 100
MODULES = ("veth", "bridge", "sch_ingress", "act_mirred", "cls_matchall")

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(2_400)]


def apt(folder: Path, *words: str) -> str:
    """What apt says with the backports of this machine's release beside its own sources."""
    own = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": f"{folder}/sources",
        "Dir::Etc::Preferences": f"{folder}/preferences",
        "Dir::State::Lists": f"{folder}/lists",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
    done = subprocess.run(
        [words[0], *options, *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the backports cannot be had: {done.stderr.strip()[-200:]}")
    return done.stdout


def unpacked(folder: Path, package: str, called: str) -> Path:
    """A package's files, in a folder of its own."""
    apt(folder, "apt-get", "download", "-qq", package)
    [archive] = folder.glob(f"{called}_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder / called)], check=True)
    return folder / called


def test_packets_come_through_a_netkit(tmp_path: Path) -> None:
    folder = tmp_path / "apt"
    subprocess.run(["sh", str(SOURCES), str(folder)], check=True)
    apt(folder, "apt-get", "update", "-qq")
    kernel = KERNEL.search(apt(folder, "apt-cache", "show", "-a", "linux-image-amd64"))
    if kernel is None:
        pytest.skip("no kernel of Linux 6.7 or newer in this machine's lists of packages")
    codename = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    assert codename is not None
    tools = unpacked(folder, f"iproute2/{codename[1]}-backports", "iproute2")
    files = unpacked(folder, kernel[1], kernel[1])
    [modules] = (files / "lib/modules").iterdir()
    subprocess.run(["depmod", "-b", str(files), modules.name], check=True)
    [image] = (files / "boot").glob("vmlinuz-*")
    options = {"memory": "1024 MiB", "kernel": str(image)}
    path = f"PATH={tools}/sbin:{tools}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(options))) as (_, device):
        host = device.host
        assert isinstance(host, GuestHost)
        host.run(["modprobe", "-a", *MODULES])
        (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
        host.put(tmp_path / "experiment.yaml", Path("/run/experiment.yaml"))
        command = [TAILTAP, "run", "/run/experiment.yaml", "--out", "/run/out", "--json"]
        told = host.run(["env", path, *command, "--quiet"], seconds=900, check=False)
    [run] = json.loads(told.stdout)["runs"]
    assert run["status"] == "done", run["error"]
    counts = run["evaluation"]["counts"]
    assert (counts["matched"], counts["lost"]) == (PACKETS, 0)
