"""Machines with an sshd each, as network namespaces on this one, and cables between them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from labtools import Machine, own_machine, wait_for

from tailtap.lab.platforms.vm.kernels import unpacked

PORT = 22
USER = "tt-sshd:x:64999:64999::/run/sshd:/usr/sbin/nologin\n"
"""The user whose rights sshd has before a login; it is called sshd there."""
CONFIG = """
Port {port}
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile /run/sshd/login.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
"""
CLIENT = """
Host *
    User root
    IdentityFile {folder}/login
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
"""

State: TypeAlias = tuple[list[str], list[str], str]
"""Namespaces, journals and files of roles, and the cards with their names and flags."""


@dataclass(frozen=True)
class Hosts:
    """Machines that the controller reaches by ssh."""

    controller: Machine
    machines: Mapping[str, Machine]
    addresses: Mapping[str, str]
    folder: Path
    """Keys, and the configuration of the controller's ssh: `ssh_config`."""
    servers: Mapping[str, subprocess.Popen[bytes]]
    at_first: dict[str, State] = field(default_factory=dict)
    """What each host was like when a test looked for the first time."""

    def threads(self, host: str) -> dict[int, str]:
        """The threads of a host's sshd, and of everything that it started, with their names."""
        parents: dict[int, int] = {}
        names: dict[int, dict[int, str]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                parents[int(path.name)] = int(parent)
                names[int(path.name)] = {
                    int(task.name): (task / "comm").read_text().rstrip("\n")
                    for task in (path / "task").iterdir()
                }
        ours = {self.servers[host].pid}
        while found := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= found
        return {tid: name for pid in ours for tid, name in names.get(pid, {}).items()}

    def cable(self, one: str, card: str, other: str, there: str) -> None:
        """Join two hosts by a pair of cards with two queues each."""
        pids = [self.machines[name].pid for name in (one, other)]
        queues = ["numrxqueues", "2", "numtxqueues", "2"]
        add = ["ip", "link", "add", card, *queues, "netns", str(pids[0]), "type", "veth"]
        subprocess.run([*add, "peer", "name", there, *queues, "netns", str(pids[1])], check=True)

    def split_cable(self, ends: tuple[tuple[str, str], tuple[str, str]], copy: str) -> None:
        """A cable between cards of two hosts whose packets come to a card of `copy` as well.

        The splitter is a bridge of the controller that learns no addresses, so that it floods.
        """
        _, card = ends[0]
        bridge = f"split-{card}"
        add = self.controller.run("ip", "link", "add", bridge, "type", "bridge", "ageing_time", "0")
        assert add.returncode == 0, add.stderr
        self.controller.run("ip", "link", "set", bridge, "up")
        for host, name in (*ends, (copy, f"seen-{card}")):
            pair = ["ip", "link", "add", f"{name}-s", "netns", str(self.controller.pid)]
            peer = ["peer", "name", name, "netns", str(self.machines[host].pid)]
            subprocess.run([*pair, "type", "veth", *peer], check=True)
            self.controller.run("ip", "link", "set", f"{name}-s", "master", bridge, "up")

    @contextlib.contextmanager
    def disk(self, host: str, folder: str, room: int) -> Iterator[None]:
        """Within, this folder of a host is an empty disk with room for so many bytes."""
        machine = self.machines[host]
        size = f"size={room}"
        made = machine.run("mount", "-t", "tmpfs", "-o", size, "tt-disk", folder)
        assert made.returncode == 0, made.stderr
        try:
            yield
        finally:
            machine.run("umount", folder)

    @contextlib.contextmanager
    def file(self, host: str, path: str, other: Path) -> Iterator[None]:
        """Within, a file of a host is another one."""
        made = self.machines[host].run("mount", "--bind", str(other), path)
        assert made.returncode == 0, made.stderr
        try:
            yield
        finally:
            self.machines[host].run("umount", path)

    @contextlib.contextmanager
    def cut(self, host: str) -> Iterator[None]:
        """Within, the network between a host and the controller carries nothing, without a word."""
        machine = self.machines[host]
        machine.run("ip", "link", "set", "control", "down")
        try:
            yield
        finally:
            machine.run("ip", "link", "set", "control", "up")

    @contextlib.contextmanager
    def users(self, host: str, sudoers: str, *names: str) -> Iterator[None]:
        """Within, a host has sudo, what it reads as its rules, and users besides root."""
        machine, package = self.machines[host], unpacked("sudo")
        etc = self.folder / f"etc-{'-'.join((host, *names))}"
        etc.mkdir()
        for name, kind in (("passwd", "x:{0}:{0}::/:/bin/sh"), ("shadow", "*:19000::::::")):
            lines = [f"{user}:{kind.format(64990 + n)}\n" for n, user in enumerate(names)]
            known = machine.run("cat", f"/etc/{name}").stdout
            (etc / name).write_text(known + "".join(lines))
        # It would keep what it remembers where this machine's own sudo does.
        rules = "Defaults timestampdir=/run/tailtap/sudo, lecture_status_dir=/run/tailtap/sudo\n"
        (etc / "sudoers").write_text(rules + sudoers)
        (etc / "sudoers").chmod(0o440)
        layers = {"/etc": f"{etc}:{package}/etc:/etc", "/usr": f"{package}/usr:/usr"}
        for place, folders in layers.items():
            made = machine.run("mount", "-t", "overlay", "-o", f"lowerdir={folders}", "tt", place)
            assert made.returncode == 0, made.stderr
        try:
            yield
        finally:
            for place in layers:
                machine.run("umount", "--lazy", place)


@contextlib.contextmanager
def ssh_hosts(folder: Path, names: Sequence[str]) -> Iterator[Hosts]:
    """Hosts of these names; everything of them is gone afterwards."""
    program = unpacked("openssh-server") / "usr/sbin/sshd"
    libraries = next((unpacked("libwrap0") / "usr/lib").glob("*-linux-gnu"))
    for key in ("host", "login"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    passwd = folder / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text() + USER.replace("tt-sshd", "sshd"))
    (folder / "ssh_config").write_text(CLIENT.format(folder=folder))
    public = " ".join((folder / "host.pub").read_text().split()[:2])
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(own_machine())
        controller.run("ip", "link", "set", "lo", "up")
        machines = {name: stack.enter_context(own_machine()) for name in names}
        addresses: dict[str, str] = {}
        servers: dict[str, subprocess.Popen[bytes]] = {}
        known: list[str] = []
        for number, (name, machine) in enumerate(machines.items(), 1):
            addresses[name] = f"198.51.100.{4 * number + 2}"
            near = f"198.51.100.{4 * number + 1}"
            subprocess.run(
                ["ip", "link", "add", f"to-{name}", "netns", str(controller.pid), "type", "veth",
                 "peer", "name", "control", "netns", str(machine.pid)], check=True,
            )  # fmt: skip
            for where, port, address in (
                (controller, f"to-{name}", near),
                (machine, "control", addresses[name]),
            ):
                where.run("ip", "addr", "add", f"{address}/30", "dev", port)
                where.run("ip", "link", "set", port, "up")
            machine.run("ip", "link", "set", "lo", "up")
            machine.run("mkdir", "-p", "/run/sshd")
            # The key that may log in is read by whoever logs in.
            machine.run("mount", "-t", "tmpfs", "-o", "mode=755", "tt-sshd", "/run/sshd")
            machine.run("cp", str(folder / "login.pub"), "/run/sshd/login.pub")
            machine.run("mount", "-t", "tmpfs", "tt-tmp", "/var/tmp")
            machine.run("mount", "--bind", str(passwd), "/etc/passwd")
            config = folder / f"sshd-{name}"
            config.write_text(CONFIG.format(port=PORT, address=addresses[name], folder=folder))
            environment = f"LD_LIBRARY_PATH={libraries}"
            command = machine.command(
                "env", environment, str(program), "-D", "-e", "-f", str(config)
            )
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            server = subprocess.Popen(command, stderr=log, start_new_session=True)
            servers[name] = server
            stack.callback(_end, server)
            known.append(f"{addresses[name]} {public}\n")
        (folder / "known_hosts").write_text("".join(known))
        for path in [folder / f"{name}.log" for name in names]:
            wait_for(partial(_listens, path), f"sshd of {path.stem}")
        yield Hosts(controller, machines, addresses, folder, servers)


def _listens(log: Path) -> bool:
    return b"listening" in log.read_bytes()


def _end(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, 15)
    server.wait()
