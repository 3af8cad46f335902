"""An emulated machine that is booted by ssh and power-cycled by its controller."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import USER, configuration, password_file, serving
from emulated_cards import EMULATOR
from grub_disk import GRUB
from labtools import record, wait_for, was_made
from live_machine import ROM, USUAL, Live, live_machine
from program import TAILTAP

LAB = """\
hosts:
  dut:
    ssh: dut
    python: /usr/bin/python3
    boot: {boot}
    power: {power}
cables:
  - {{ends: [dut:enp0s2, dut:enp0s4]}}
  - {{ends: [dut:enp0s3, dut:enp0s5]}}
roles: {{dut: dut, generator: dut, timestamper: dut}}
ssh_config: ssh_config
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not EMULATOR.exists(), reason="no emulator is here: run `make emulator`"),
    pytest.mark.skipif(
        not (Path(ROM).exists() and GRUB.exists() and shutil.which("mmdebstrap")),
        reason="needs the Debian packages ipxe-qemu, grub-pc-bin and mmdebstrap",
    ),
]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_machine(tmp_path_factory.mktemp("live")) as machine:
        yield machine


@pytest.fixture
def power(live: Live, tmp_path: Path) -> Iterator[dict[str, Any]]:
    words = {key: " ".join(f"'{word}'" for word in live.monitor(command)) for key, command in (
        ("status", "info status"), ("switch_on", "cont"), ("switch_off", "stop"),
        ("reset", "system_reset"), ("cycle", "system_reset"),
    )}  # fmt: skip
    machine = {"kind": "command", "name": "dut", **words}
    with serving(configuration(tmp_path, [machine])) as served:
        yield {"kind": "ipmi", "address": "127.0.0.1", "port": served.ports[0], "user": USER,
               "password_file": str(password_file(tmp_path))}  # fmt: skip


def lab(live: Live, power: dict[str, Any] | None, **boot: object) -> Path:
    path = live.folder / "lab.yaml"
    images = {"vanilla": "vanilla", "rt": "rt"}
    boot = {"images": images, "append": USUAL, "timeout": "240 s", **boot}
    path.write_text(LAB.format(boot=json.dumps(boot), power=json.dumps(power)))
    return path


def booted(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(TAILTAP), "testbed", "boot", str(path), "dut", *words, "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


def test_a_host_boots_by_its_network_and_by_kexec_and_is_revived(
    live: Live, power: dict[str, Any]
) -> None:
    """iPXE, with control groups of version 1; then it hangs; then kexec."""
    ipxe = lab(live, power, via="ipxe", address="127.0.0.1", port=live.http_port)
    done = booted(ipxe, "--kernel", "vanilla", "--append", "systemd.unified_cgroup_hierarchy=0")
    assert was_made(done), done.stderr
    told = json.loads(done.stdout)
    assert (told["via"], told["cgroup"], told["release"]) == ("ipxe", 1, live.image.release)
    live.ssh("sh -c 'echo c > /proc/sysrq-trigger'")
    assert live.ssh("true") is None
    done = booted(lab(live, power, via="kexec"), "--kernel", "vanilla", "--append", "nohz=off")
    assert was_made(done), done.stderr
    assert "dut does not answer: switching it off and on" in done.stderr
    told = json.loads(done.stdout)
    assert (told["via"], told["cgroup"]) == ("kexec", 2)
    assert told["command_line"].split()[-1] == "nohz=off"
    assert live.ssh("cat /proc/cmdline") == told["command_line"] + "\n"


def test_an_entry_of_grub_is_booted_once(live: Live, power: dict[str, Any]) -> None:
    """The default comes back by itself: GRUB has cleared what it was to boot next."""
    path = lab(live, power, via="grub", images={}, append=None)
    assert live.ssh("mount /dev/vda1 /boot") is not None
    done = booted(path, "--append", "nohz=off")
    assert was_made(done), done.stderr
    told = json.loads(done.stdout)
    assert (told["via"], told["release"]) == ("grub", live.image.release)
    assert told["command_line"].split()[-1] == "nohz=off"
    done = booted(path, "--default")
    assert was_made(done), done.stderr
    now = live.ssh("cat /proc/cmdline")
    assert now is not None
    assert now.split()[1:] == USUAL.split()
    environment = live.ssh("mount /dev/vda1 /boot && grub-editenv /boot/grub/grubenv list")
    assert environment == "next_entry=\n"


KERNELS = """\
name: kernels
dut: {platform: container, forwarder: tc-mirred, cpus: [1], memory: 256 MiB}
traffic: {rate: 100 pkt/s, duration: 1 s, warm_up: 0 s, cpu: 0}
vary:
  dut.kernel: [vanilla, rt]
  dut.cgroup: [2, 1]
"""


def test_kernels_and_versions_of_control_groups_are_one_experiment(
    live: Live, power: dict[str, Any], tmp_path: Path
) -> None:
    """It is killed once a run is done, and completed by --resume."""
    testbed = lab(live, power, via="kexec")
    (tmp_path / "kernels.yaml").write_text(KERNELS)
    out = tmp_path / "out"
    command = [str(TAILTAP), "run", str(tmp_path / "kernels.yaml"), "--testbed", str(testbed)]
    command += ["--out", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(
            lambda: statuses(out)[:1] == ["done"] or running.poll() is not None,
            "a run that is done",
            600,
        )
        assert running.poll() is None, running.communicate()[1]
    finally:
        running.kill()
        running.communicate()
    done = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, timeout=2400, check=False
    )
    assert was_made(done), done.stderr
    assert statuses(out) == ["done"] * 4
    records = [record(path) for path in sorted((out / "runs").iterdir())]
    boots = [one["boot"] for one in records]
    assert [boot["cgroup"] for boot in boots] == [2, 1, 2, 1]
    limits = [one["platform"]["cgroup"] for one in records]
    assert [(one["cpuset"]["version"], one["memory"]["version"]) for one in limits] == [
        (2, 2), (1, 1), (2, 2), (1, 1),
    ]  # fmt: skip
    releases = [live.image.release] * 2 + [live.realtime.release] * 2
    assert [boot["release"] for boot in boots] == releases
    assert len({boot["boot_id"] for boot in boots}) == 4
    told = [one["environment"]["kernel"]["preemption"] for one in records]
    assert told[2:] == ["PREEMPT_RT"] * 2 != told[:2]


def statuses(out: Path) -> list[str]:
    runs = sorted((out / "runs").glob("*")) if (out / "runs").is_dir() else []
    return [record(path)["status"] for path in runs if (path / "run.json").exists()]


FAR = """\
name: far
dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}
traffic: {rate: 100 pkt/s, duration: 1 s, warm_up: 0 s, cpu: 0}
trace: thin
"""


def test_a_host_of_debian_11_is_given_what_it_lacks(tmp_path: Path) -> None:
    """Its Python is 3.9, once replaced by ours; its kernel takes our tap and our tracer."""
    with live_machine(tmp_path, ["vanilla"], "bullseye") as old:
        path, out = lab(old, None, via="kexec"), tmp_path / "out"
        (tmp_path / "far.yaml").write_text(FAR)
        run = ["run", str(tmp_path / "far.yaml"), "--testbed", str(path), "--json"]
        asked, again, made, cables, told = (
            subprocess.run(
                [str(TAILTAP), *words], capture_output=True, text=True, timeout=1200, check=False
            )
            for words in (
                [*run, "--check"], [*run, "--check"], [*run, "--out", str(out)],
                ["testbed", "check", str(path), "--json"],
                ["explain", str(out / "runs/001-far"), "--late", "p90", "--json"],
            )
        )  # fmt: skip
        assert "dut: Python 3.9 is not 3." in asked.stderr
        assert "copied" not in again.stderr
        assert json.loads(again.stdout)["runs"][0]["problems"] == []
        release = old.image.release
        assert release.startswith("5.10.")
        right = json.loads(cables.stdout)
        assert (right["hosts"][0]["kernel"], right["right"]) == (release, True), cables.stderr
    assert was_made(made), made.stderr
    [stamped] = json.loads(made.stdout)["runs"]
    counts = stamped["evaluation"]["counts"]
    assert counts["matched"] + counts["lost"] == 100 > counts["lost"]
    causes = json.loads(told.stdout)
    assert causes["trace"]["lost"] == 0 < causes["late"]["packets"], told.stderr
