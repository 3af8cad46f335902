"""What each file of the papers takes at the papers' scale on a testbed of their form: three hosts,
and splitters on the device's cables.

Generator and timestamper are namespaces of this machine. The device's host is emulated: four CPUs,
as the first paper's had, four cards of two ports, two cards with virtual functions, and two kernels
to boot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_cards import emulated_machine
from labtools import wait_for
from ssh_hosts import CONFIG, PORT, Hosts, ssh_hosts

from tailtap.lab.platforms.vm.kernels import kernel, unpacked

FILES = sorted((Path(__file__).parents[2] / "examples/papers").glob("*.yaml"))
PORTS = [f"{card}p{port}" for card in ("x552", "x520", "x710", "e810") for port in (0, 1)]
# A card's address ends with its number, and its cable ends somewhere: nothing is sent.
MACHINE = (
    "-smp 4 -netdev user,id=control,hostfwd=tcp:127.0.0.1:2222-:22 "
    "-device virtio-net-pci,netdev=control,mac=52:54:00:74:75:00"
)
CARD = (
    " -netdev hubport,id={1},hubid=0 -device pcie-root-port,id=slot{0},chassis={0} "
    "-device igb,netdev={1},mac=52:54:00:74:75:{0:02x},bus=slot{0}"
)
SET_UP = """
modprobe --all virtio_net overlay
for card in /sys/class/net/*; do
    read -r mac < $card/address
    ip link set ${{card##*/}} name card$((0x${{mac##*:}})) || test ${{card##*/}} = lo
done
n=0
for name in control {cards}; do ip link set card$n name $name; n=$((n + 1)); done
ip addr add 10.0.2.15/24 dev control
ip link set control up
mkdir -p /run/sshd /boot /usr/local/bin
ln -s {bin}/dpdk-l?fwd /usr/local/bin/
cp {folder}/login.pub /run/sshd/
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tt-tmp /var/tmp
mount -t overlay -o lowerdir={kernels} tt-boot /boot
mount --bind {folder}/passwd /etc/passwd
[ ! -e /root/.bashrc ] || mount --bind /dev/null /root/.bashrc
"""
LAB = """
hosts:
  tester: {{ssh: {tester}, python: /usr/bin/python3}}
  dut: {{ssh: emulated, python: /usr/bin/python3, boot: {{via: kexec}}}}
  stamper: {{ssh: {stamper}, python: /usr/bin/python3}}
roles: {{dut: dut, generator: tester, timestamper: stamper}}
ssh_config: ssh_config
cables:
"""
CABLE = "  - {{ends: [tester:gen{0}, dut:{1}], splitter: stamper:tap{0}}}\n"
CLIENT = """
Host emulated
    HostName 127.0.0.1
    Port 2222
    StrictHostKeyChecking accept-new
"""
FEWER = [
    "dut.cpus=[1, 2, 3]",
    "vary.dut.line=[1, 7]",
    "vary.dut.irq=[[1, 2, 3], node, core]",
    "exclude=[{dut.irq: core, dut.line: 7}]",
]
"""The lines that the emulated host has CPUs and virtual functions for, of those up to 64 nodes."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder, cards = tmp_path_factory.mktemp("hosts"), [*PORTS, "eth2", "eth3"]
    words = (MACHINE + "".join(CARD.format(*one) for one in enumerate(cards, 1))).split()
    kernels = ":".join(str(kernel(name).image.parent) for name in ("vanilla", "rt"))
    set_up = SET_UP.format(
        cards=" ".join(cards), folder=folder, kernels=kernels, bin=Path(sys.prefix, "bin")
    )
    libraries = next((unpacked("libwrap0") / "usr/lib").glob("*-linux-gnu"))
    sshd = [f"LD_LIBRARY_PATH={libraries}", str(unpacked("openssh-server") / "usr/sbin/sshd")]
    with ssh_hosts(folder, ["tester", "stamper"]) as made:
        for number in range(len(PORTS)):
            made.cable("tester", f"gen{number}", "stamper", f"tap{number}")
        cables = "".join(CABLE.format(*one) for one in enumerate(PORTS))
        (folder / "lab.yaml").write_text(LAB.format(**made.addresses) + cables)
        (folder / "sshd").write_text(CONFIG.format(port=PORT, address="0.0.0.0", folder=folder))
        config = folder / "ssh_config"
        config.write_text(CLIENT + config.read_text())
        # Room as on the disks of the papers' controllers, in memory that nobody takes.
        made.controller.run("mount", "-o", "remount,size=10T", "/run/tailtap")
        beside = made.controller.command()
        with emulated_machine(folder, words, set_up, 4, beside=beside) as guest:
            guest.start(["env", *sshd, "-D", "-e", "-f", str(folder / "sshd")])
            login = ("ssh", "-F", str(config), "emulated", "true")
            wait_for(lambda: made.controller.run(*login).returncode == 0, "the device's sshd")
            yield made


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_would_run_and_says_what_it_takes(hosts: Hosts, path: Path) -> None:
    chosen = ["scale=paper", *(FEWER if path.stem.startswith("line-") else [])]
    words = ["--testbed", str(hosts.folder / "lab.yaml"), "--out", "/run/tailtap/results"]
    words += [word for one in chosen for word in ("--set", one)]
    done = hosts.controller.tailtap("run", str(path), "--check", "--json", *words, seconds=1500)
    told = json.loads(done.stdout)
    said = {one["message"] for run in (told, *told["runs"]) for one in run["problems"]}
    assert (done.returncode, told["can_run"], said) == (0, True, set())
    assert 0 < told["boots"] <= len(told["runs"])
    assert 0 < told["stamp_bytes"] < told["free_bytes"]
