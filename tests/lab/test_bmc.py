"""Controllers for a real container of LXC and a real domain of libvirt."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from controlled import PASSWORD, USER, Served, configuration, credentials, serving
from labtools import wait_for
from program import one_line_error, tailtap
from pyghmi.ipmi.command import Command

START_SECONDS = 60.0
"""libvirt asks QEMU for all that it can do when a domain is defined for the first time."""
INIT = 'trap "exit 0" TERM\nwhile :; do sleep 1 & wait; done\n'
"""A first process that ends when it is asked to."""
DOMAIN = """\
<domain type="qemu"><name>{name}</name><memory unit="MiB">64</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><features><acpi/></features>
<devices><controller type="usb" model="none"/><memballoon model="none"/>
<interface type="ethernet"><boot order="2"/></interface></devices></domain>
"""
DAEMON = """\
set -e
for folder in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
    mkdir -p $folder
    mount -t tmpfs tt-libvirt $folder
done
mount -t tmpfs tt-libvirt /run
# libvirt looks for this user and this group, whoever QEMU runs as.
cp /etc/passwd /etc/group {folder}
grep -q ^libvirt-qemu: /etc/passwd || {{
    echo libvirt-qemu:x:65534:65534::/nonexistent:/usr/sbin/nologin >> {folder}/passwd
    echo libvirt-qemu:x:65534: >> {folder}/group
}}
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/group /etc/group
cat > /etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
END
printf 'unix_sock_dir = "{folder}"\\nauth_unix_rw = "none"\\n' > {folder}/libvirtd.conf
exec libvirtd -f {folder}/libvirtd.conf -p {folder}/pid
"""
"""A libvirt of its own: the files and links that it makes are in namespaces that only it sees."""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[dict[str, str]]:
    name = f"tailtap-bmc-{os.getpid()}"
    root = tmp_path / name / "rootfs"
    shared = [path for path in ("/usr", "/bin", "/lib", "/lib64") if Path(path).exists()]
    for folder in (*shared, "/proc", "/dev", "/sys", "/tmp"):
        (root / folder[1:]).mkdir(parents=True)
    (root / "init.sh").write_text(INIT)
    rows = [
        f"lxc.uts.name = {name}",
        f"lxc.rootfs.path = dir:{root}",
        "lxc.net.0.type = empty",
        "lxc.apparmor.profile = unconfined",
        "lxc.signal.halt = SIGTERM",
        *(f"lxc.mount.entry = {path} {path[1:]} none rbind,ro 0 0" for path in shared),
        "lxc.init.cmd = /bin/sh /init.sh",
    ]
    (tmp_path / name / "config").write_text("\n".join(rows) + "\n")
    try:
        yield {"kind": "lxc", "name": name, "path": str(tmp_path)}
    finally:
        command = ["lxc-stop", "-k", "-P", str(tmp_path), "-n", name]
        subprocess.run(command, check=False, capture_output=True)


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[dict[str, str]]:
    name = f"tailtap-bmc-{os.getpid()}"
    script = DAEMON.format(folder=tmp_path)
    command = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script]
    uri = f"qemu+unix:///system?socket={tmp_path}/libvirt-sock"
    with (tmp_path / "libvirtd.log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for((tmp_path / "libvirt-sock").exists, "libvirt")
            assert daemon.poll() is None, (tmp_path / "libvirtd.log").read_text()
            definition = tmp_path / "domain.xml"
            definition.write_text(DOMAIN.format(name=name))
            virsh(uri, "define", str(definition))
            yield {"kind": "libvirt", "name": name, "uri": uri}
        finally:
            subprocess.run(["virsh", "-c", uri, "destroy", name], check=False, capture_output=True)
            daemon.terminate()
            daemon.wait(timeout=START_SECONDS)


def virsh(uri: str, *words: str) -> str:
    command = ["virsh", "-q", "-c", uri, *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=START_SECONDS
    )
    assert done.returncode == 0, (shlex.join(command), done.stderr)
    return done.stdout.strip()


def powers(served: Served, word: str, at: int = 0) -> None:
    done = served.ipmitool("chassis", "power", word, at=at)
    assert done.returncode == 0, done
    served.expect("power")


def status(served: Served, at: int = 0) -> str:
    done = served.ipmitool("chassis", "power", "status", at=at)
    assert done.returncode == 0, done
    return done.stdout.split()[-1]


def first_process(container: dict[str, str]) -> int:
    """The id of the container's first process; raises when there is none."""
    command = ["lxc-info", "-P", container["path"], "-n", container["name"], "-p", "-H"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_container_is_controlled(tmp_path: Path, container: dict[str, str]) -> None:
    path = configuration(tmp_path, [container])
    with serving(path) as served:
        assert status(served) == "off"
        powers(served, "on")
        assert status(served) == "on"
        first = first_process(container)
        powers(served, "cycle")
        second = first_process(container)
        powers(served, "reset")
        assert len({first, second, first_process(container)}) == 3
        powers(served, "soft")
        wait_for(lambda: status(served) == "off", "an end")
        client = Command("127.0.0.1", USER, PASSWORD, port=served.ports[0])
        assert client.set_power("on", wait=30) == {"powerstate": "on"}
        assert client.set_bootdev("network")["bootdev"] == "network"
        client.ipmi_session.logout()
        before = first_process(container)
        os.kill(served.child.pid, signal.SIGTERM)
        assert served.child.wait(30) == 0
    # It is the user's, and lives on.
    assert first_process(container) == before


def test_a_domain_is_controlled(tmp_path: Path, domain: dict[str, str]) -> None:
    uri, name = domain["uri"], domain["name"]
    with serving(configuration(tmp_path, [domain])) as served:
        assert status(served) == "off"
        shown = served.ipmitool("chassis", "bootparam", "get", "5").stdout
        assert "Force PXE" in shown
        assert served.ipmitool("chassis", "bootdev", "cdrom").returncode == 0
        served.expect("boot")
        definition = ET.fromstring(virsh(uri, "dumpxml", "--inactive", name))
        assert [boot.get("dev") for boot in definition.findall("os/boot")] == ["cdrom", "network"]
        assert definition.findall("devices/*/boot") == []
        powers(served, "on")
        assert (status(served), virsh(uri, "domstate", name)) == ("on", "running")
        number = virsh(uri, "domid", name)
        powers(served, "reset")
        assert virsh(uri, "domid", name) == number
        powers(served, "cycle")
        assert virsh(uri, "domid", name) != number
        powers(served, "soft")  # nothing runs in it that would listen
        powers(served, "off")
        assert (status(served), virsh(uri, "domstate", name)) == ("off", "shut off")


def test_machines_that_are_not_there(tmp_path: Path, container: dict[str, str]) -> None:
    users = credentials(tmp_path)
    words = ("bmc", "--credentials", users, "--serve", "libvirt:none@0")
    assert one_line_error(tailtap(*words), 3).startswith("tailtap: libvirt:none: ")
    path = configuration(tmp_path, [{**container, "name": "none"}])
    assert one_line_error(tailtap("bmc", path), 3).startswith("tailtap: lxc:none: ")
