"""Hosts of a testbed: their stations and consoles, and boots as runs ask for them, each of which is
checked.

A word of our own stands on the command line between the host's usual words and those of the run,
so that the usual ones are known even when nobody remembers the last boot. It names
the kernel that the host boots by default. The kernel takes it for the parameter of a module that is
not there (Documentation/admin-guide/kernel-parameters.rst), and does nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from tailtap.base.errors import InputError, MachineError
from tailtap.base.locks import wait_until
from tailtap.host.containers.cgroups import HIERARCHY
from tailtap.host.knobs.line import by_version
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import RT, VANILLA, is_release
from tailtap.measure.boots import Wanted
from tailtap.measure.roles import Stations
from tailtap.measure.roles.here import Here
from tailtap.measure.testbed.boot import WAYS, BootOptions, Commanded, Files, Way, reboot
from tailtap.measure.testbed.image import Image, image_in
from tailtap.measure.testbed.model import Host, Testbed
from tailtap.measure.testbed.power import IpmiPower, Power, power_of
from tailtap.measure.testbed.ssh import FarHost, SshStation
from tailtap.records.machine import Booted
from tailtap.remote.local import require_program
from tailtap.remote.session import Station

MARK = "tailtap.default"
"""The word before those of a run; its value is the release of the default kernel."""
LOADERS = frozenset(("BOOT_IMAGE", "initrd", "BOOTIF"))
"""Words that boot loaders add."""
PAUSE_SECONDS = 1.0
PROBE_SECONDS = 10.0
"""How long a host that is up may take to say which boot it is in."""
_TELL = (
    "cat /proc/sys/kernel/random/boot_id; uname -r; "
    "if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo 2; else echo 1; fi; cat /proc/cmdline"
)
_KERNELS = "cd /boot && ls -1 vmlinuz-* && ls -1 init*"


@dataclass(frozen=True)
class Told:
    """What a host says of its boot."""

    boot_id: str
    release: str
    cgroup: int
    """The version of control groups whose hierarchy systemd made, 1 or 2."""
    line: str

    @property
    def usual(self) -> str:
        """The words of its default boot, as far as they can be told."""
        words = self.line.split()
        marks = [at for at, word in enumerate(words) if word.startswith(f"{MARK}=")]
        kept = words[: marks[0]] if marks else words
        return " ".join(word for word in kept if word.partition("=")[0] not in LOADERS)

    @property
    def default(self) -> str:
        """The release of its default kernel, as far as that can be told."""
        found = re.search(rf"(?:^|\s){re.escape(MARK)}=(\S+)", self.line)
        return found[1] if found else self.release


def told_by(host: FarHost) -> Told:
    """What the host says. Raises `MachineError`."""
    said = host.run(["sh", "-c", _TELL]).stdout.split("\n")
    if len(said) < 4:
        raise MachineError(f"{host.name} does not tell how it was booted: it says {said!r}")
    return Told(said[0].strip(), said[1].strip(), int(said[2]), said[3].strip())


def files_of(host: FarHost, told: Told, options: BootOptions, wanted: Wanted) -> Files:
    """What the host is booted with. Raises `InputError` and `MachineError`."""
    if options.images:
        kernel, usual = _image(options.images, wanted.kernel), options.append or ""
        words = f"{usual} {MARK}={told.default} {wanted.words}"
        line = " ".join(words.split())
        return Files(
            str(kernel.kernel),
            str(kernel.initrd),
            kernel.release,
            line,
            ours=True,
            key=str(kernel.key),
        )
    usual = told.usual if options.append is None else options.append
    line = " ".join(f"{usual} {MARK}={told.default} {wanted.words}".split())
    listed = host.run(["sh", "-c", _KERNELS], check=False).stdout.split()
    path, release = _installed(host.name, listed, told.default, wanted.kernel)
    names = (f"initrd.img-{release}", f"initramfs-{release}.img", f"initrd-{release}")
    initrd = next((f"/boot/{name}" for name in names if name in listed), None)
    return Files(path, initrd, release, line, ours=False)


def _image(images: Mapping[str, str], kernel: str | None) -> Image:
    if kernel is None and len(images) == 1:
        [folder] = images.values()
    elif kernel is None:
        raise InputError(f"dut.kernel: say which live image: {', '.join(images)}")
    elif kernel in images:
        folder = images[kernel]
    else:
        raise InputError(
            f"dut.kernel: there is no live image {kernel}: there are {', '.join(images)}"
        )
    return image_in(folder)


def _installed(name: str, files: list[str], default: str, wanted: str | None) -> tuple[str, str]:
    """The path and the release of a kernel in a host's ``/boot``, whose `files` these are."""
    releases = [one.removeprefix("vmlinuz-") for one in files if one.startswith("vmlinuz-")]
    if wanted is not None and wanted.startswith("/"):
        release = wanted.rpartition("/vmlinuz-")[2]
        if f"vmlinuz-{release}" != wanted.rpartition("/")[2]:
            raise InputError(f"dut.kernel: {wanted}: a kernel of a host is called vmlinuz-RELEASE")
        return wanted, release
    realtime = [one for one in releases if re.search(r"-rt\d*(-|$)", one)]
    if wanted is None:
        found = [one for one in releases if one == default]
    elif wanted in (VANILLA, RT):
        found = [one for one in releases if (one in realtime) == (wanted == RT)]
        found = [default] if default in found else found
    else:
        found = [one for one in releases if is_release(wanted, one)]
    if not found:
        raise MachineError(
            f"dut.kernel: {name} has no kernel {wanted or default} in /boot: it has "
            f"{', '.join(releases) or 'none'}: install it there, or boot a live image with "
            "`boot.images`"
        )
    newest = max(found, key=by_version)
    return f"/boot/vmlinuz-{newest}", newest


def verify(name: str, before: str, now: Told, files: Files) -> None:
    """Raises `MachineError` unless the host is in another boot than `before`, with `files`."""
    if now.boot_id == before:
        raise MachineError(f"{name} did not reboot")
    if files.release and now.release != files.release:
        raise MachineError(
            f"{name} booted {now.release}, not {files.release}: its default came up instead, or "
            "the kernel did not start: look at `tailtap testbed console`"
        )
    missing = boot.lacking(files.line, now.line)
    if missing:
        words = " ".join(map(str, missing))
        raise MachineError(
            f"{name} booted {now.release} without {words}: a command line holds 2047 characters, "
            "and a loader may change it"
        )
    asked = [one.value for one in boot.parameters(files.line) if one.name == HIERARCHY]
    if asked and asked[-1] is not None:
        version = 1 if asked[-1] in ("0", "no", "false", "off") else 2
        if now.cgroup != version:
            raise MachineError(
                f"{name} was booted with {HIERARCHY}={asked[-1]}, but its control groups are of "
                f"version {now.cgroup}: its systemd does not know version {version} (any more)"
            )


class Booting:
    """One host that is booted as runs ask for it."""

    def __init__(
        self,
        station: SshStation,
        options: BootOptions,
        way: Way,
        power: Power | None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """The host of `station`; `power` is its, and `tell` is given a line for each step."""
        self._station, self._options, self._way, self._power = station, options, way, power
        self._tell = tell
        self._key: tuple[int, Wanted] | None = None
        self._record: Booted | None = None
        self._failed: dict[tuple[int, Wanted], str] = {}

    def foresee(self, wanted: Wanted) -> str:
        if isinstance(self._way, Commanded):
            told = self._way.files(wanted.kernel, self._words(wanted))
            words = f"{told.kernel} {told.line}".strip()
            return f"{self._station.name}: it is booted by its command {words}".rstrip()
        with FarHost(self._station) as host:
            files = files_of(host, told_by(host), self._options, wanted)
        return f"{self._station.name}: it is booted with {files.release} {wanted.words}".rstrip()

    def bring(self, wanted: Wanted | None, repeat: int) -> Booted | None:
        if wanted is None:
            return None
        key = (repeat, wanted)
        if key in self._failed:
            raise MachineError(self._failed[key])
        if key == self._key and self._record and self._boot_id() == self._record.boot_id:
            return self._record
        self._key = None
        try:
            self._record = self.boot(wanted)
        except (MachineError, InputError) as error:
            self._failed[key] = str(error)
            raise
        self._key = key
        return self._record

    def boot(self, wanted: Wanted) -> Booted:
        """Boot the host with what is wanted, and check it. Raises `TailtapError`."""
        began = time.monotonic()
        if isinstance(self._way, Commanded):
            before = self._boot_id() or ""
            files = self._way.files(wanted.kernel, self._words(wanted))
            self._tell(f"{self._station.name}: booting by its command")
            with self._way.boot(None, files):
                back = self._back(before)
        else:
            self._revived()
            with FarHost(self._station) as host:
                told = told_by(host)
                before = told.boot_id
                self._way.tidy(host)  # what a controller that died left
                files = files_of(host, told, self._options, wanted)
                self._tell(f"{host.name}: booting {files.release} {wanted.words}".rstrip())
                with self._way.boot(host, files):
                    back = self._back(before)
        if not back:
            self._recover(files, before)
        with FarHost(self._station) as host:
            now = told_by(host)
            verify(host.name, before, now, files)
            self._way.tidy(host)
        seconds = time.monotonic() - began
        return Booted(
            via=self._options.via,
            boot_id=now.boot_id,
            release=now.release,
            command_line=now.line,
            cgroup=now.cgroup,
            seconds=round(seconds, 1),
        )

    def default(self) -> Told:
        """Reboot the host into its default, and what it says then. Raises `TailtapError`.

        The default of a command is what it boots where it is told no kernel.
        """
        if isinstance(self._way, Commanded):
            self.boot(Wanted(None, ""))
            with FarHost(self._station) as host:
                return told_by(host)
        self._revived()
        with FarHost(self._station) as host:
            before = told_by(host).boot_id
            self._way.tidy(host)
            reboot(host)
            back = self._back(before)
        if not back:
            raise MachineError(f"{host.name} did not come back within {self._limit:g} s")
        with FarHost(self._station) as host:
            return told_by(host)

    def _words(self, wanted: Wanted) -> str:
        return " ".join(f"{self._options.append or ''} {wanted.words}".split())

    @property
    def _limit(self) -> float:
        return self._options.timeout / 1e9

    def _revived(self) -> None:
        """Power-cycle a host that hangs. Raises `MachineError` when it stays away."""
        if self._boot_id() is not None:
            return
        why = f"{self._station.name} does not answer"
        self._cycle(why)
        if not self._back(None):
            raise MachineError(f"{why}, not even {self._limit:g} s after it was power-cycled")

    def _cycle(self, why: str) -> None:
        """Switch the host off and on. Raises `MachineError` where nothing can."""
        if self._power is None:
            raise MachineError(
                f"{why}, and nothing can switch it off and on: see hosts.{self._station.name}."
                "power, or do it by hand"
            )
        self._tell(f"{why}: switching it off and on")
        self._power.cycle()

    def _recover(self, files: Files, before: str) -> None:
        """Raises `MachineError` that says what became of a host that did not come back."""
        name, limit = self._station.name, f"{self._limit:g} s"
        if self._boot_id() == before:
            raise MachineError(f"{name} did not go down within {limit}")
        booted = files.release or "by its command"
        why = f"{name} did not come back within {limit} of booting {booted}"
        self._cycle(why)
        after = "it is back after a power cycle" if self._back(before) else (
            f"nor within {limit} of a power cycle")  # fmt: skip
        raise MachineError(after).at(why)

    def _back(self, before: str | None) -> bool:
        """Wait until the host is in another boot than `before`; whether it came in time."""
        return wait_until(lambda: self._boot_id() not in (None, before), self._limit, PAUSE_SECONDS)

    def _boot_id(self) -> str | None:
        """Which boot the host is in; None when it does not answer.

        Raises `MachineError` when it answers with a host key that ssh does not know.
        """
        command = self._station.shell("cat /proc/sys/kernel/random/boot_id")
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=PROBE_SECONDS, check=False)  # fmt: skip
            said = done.stdout.decode(errors="replace").strip()
            if done.returncode == 0 and said:
                return said.splitlines()[-1]
            if b"Host key verification failed" in done.stderr:
                # It is up, and no power cycle gives it another key.
                raise MachineError(
                    "its host key is not the one that ssh knows: all that "
                    "it boots needs the same one; copy it between the folders of live images and "
                    "make these again, or remove the old one with `ssh-keygen -R`"
                ).at(self._station.name)
        return None


def stations_of(testbed: Testbed, tell: Callable[[str], None]) -> Stations:
    """The stations by role: one object for each host, which is reached when it is asked first.

    `tell` is given a line for each host to which an interpreter was copied.
    """
    hosts: dict[str, Station] = {}
    for name, host in testbed.hosts.items():
        far = host.ssh is not None
        hosts[name] = SshStation(name, host, testbed.ssh_config, tell) if far else Here()
    return {role: hosts[name] for role, name in testbed.roles.model_dump().items()}


def booting_of(testbed: Testbed, name: str, tell: Callable[[str], None]) -> Booting | None:
    """What boots a host as runs ask; None where the testbed does not say how.

    It has a station of its own. `tell` is given a line for each step. Raises `InputError`.
    """
    if name not in testbed.hosts:
        raise InputError(f"the testbed has no host {name}: there are {', '.join(testbed.hosts)}")
    host = testbed.hosts[name]
    if host.boot is None:
        return None
    kind, options = WAYS.chosen("via", host.boot.own)
    power = None if host.power is None else power_of(host.power)
    station = SshStation(name, host, testbed.ssh_config, tell)
    return Booting(station, host.boot, kind.open(name, options), power, tell)


def command_of(name: str, host: Host) -> list[str]:
    """The command that shows the console of a host. Raises `InputError` where nothing says it."""
    if host.console is not None:
        return shlex.split(host.console)
    power = None if host.power is None else power_of(host.power)
    if isinstance(power, IpmiPower):
        return power.command("sol", "activate")
    raise InputError(
        f"hosts.{name}.console: this key is missing: it is a command that shows the console"
    )


def attach(name: str, host: Host) -> NoReturn:
    """Become the program that shows the console. Raises `InputError` and `MachineError`."""
    words = command_of(name, host)
    program = require_program(words[0], f"hosts.{name}.console names it")
    os.execv(program, words)
