"""Root file systems of containers: this machine's own, a Debian one, a folder's or an image's.

Containers write to neither: an overlay that ends with the container takes what they write.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform as python_platform
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tailtap
from tailtap.base.errors import Findings, MachineError
from tailtap.host.containers.container import Contained
from tailtap.host.containers.podman import Unpacked, unpacked
from tailtap.lab.platforms.dut import OwnFiles
from tailtap.records.run import Image
from tailtap.remote import CommandFailed, Host
from tailtap.remote.local import LocalHost, require_program

CACHE = Path("/var/cache/tailtap")
PACKAGES = ("systemd-sysv", "iproute2", "ethtool", "python3", "libelf1")
"""Packages of a Debian root besides the essential ones: services, and programs of forwarders."""
MAKER = "mmdebstrap"
BROUGHT = ("ip", "tc")
"""The programs of forwarders that come with these packages."""
SERVICE_CPU = 0
PAUSE = "catatonit"
"""The first process of what has no programs that tailtap knows: it is static, and only reaps."""
READY_SECONDS = 50.0
"""How long services may take to come up."""
UP = ("running", "degraded")
"""The states of systemd after it has started what it could."""


class Root:
    """One kind of root file system."""

    @property
    def init(self) -> Sequence[str] | None:
        """The command that is the container's first process; None for that of its engine."""
        return None

    service_cpus: Sequence[int] = ()
    """CPUs beside the DuT's that its services are limited to; none where it has no services."""

    def foresee(self, programs: Iterable[str], findings: Findings) -> None:
        """Find out what `lower` would miss here, and a forwarder that runs `programs` in it."""

    def lower(self) -> Path:
        """The folder whose content it is, made if need be. Raises `MachineError`."""
        raise NotImplementedError

    def shared(self) -> Sequence[Path]:
        """Folders of this machine that it lacks and tailtap needs."""
        raise NotImplementedError

    def files(self) -> Mapping[str, str]:
        """Files that differ from those in `lower`."""
        return {}

    def wait_until_ready(self, host: Host) -> None:
        """Return when its services have come up. Raises `MachineError`."""

    def own(self, name: str, engine: type[Contained]) -> OwnFiles | None:
        """What commands of the container `name` are, where it has none of this machine's."""
        return None


class HostRoot(Root):
    """This machine's own files, with an init that only reaps orphans."""

    def lower(self) -> Path:
        return Path("/")

    def shared(self) -> Sequence[Path]:
        device = Path("/").stat().st_dev
        return [path for path in program_folders() if path.stat().st_dev != device]


def program_folders() -> list[Path]:
    """The folders that the program tailtap needs besides a system's own Python."""
    package = Path(tailtap.__file__).resolve().parent.parent
    candidates = (Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), package)
    found: list[Path] = []
    for path in candidates:
        if path != Path("/usr") and not any(path.is_relative_to(known) for known in found):
            found.append(path)
    return found


class DebianRoot(Root):
    """Debian's release of this machine with systemd, made once by mmdebstrap and kept.

    Its services run on `SERVICE_CPU`, as in the papers.
    """

    init: Sequence[str] = ("/sbin/init",)
    service_cpus: Sequence[int] = (SERVICE_CPU,)

    def foresee(self, programs: Iterable[str], findings: Findings) -> None:
        codename = findings.ask(_codename)
        if codename is not None and not _folder(codename).is_dir():
            findings.ask(require_program, MAKER)
            findings.notes.append(
                "dut.root: the first run makes the file system of Debian, which takes a minute and "
                "downloads 80 MB"
            )
        for name in (Path(program).name for program in programs):
            if name not in BROUGHT:
                findings.problems.append(
                    f"dut.root: the program {name} is not in Debian's file system: take "
                    "dut.root: host, which has this machine's programs"
                )

    def lower(self) -> Path:
        """The folder in `CACHE`; takes a minute and downloads 80 MB when it is not there yet."""
        codename = _codename()
        folder = _folder(codename)
        if not folder.is_dir():
            _make(folder, codename, ",".join(PACKAGES))
        return folder

    def shared(self) -> Sequence[Path]:
        return program_folders()

    def files(self) -> Mapping[str, str]:
        name = "/etc/systemd/system.conf.d/tailtap.conf"
        return {name: f"[Manager]\nCPUAffinity={SERVICE_CPU}\n"}

    def wait_until_ready(self, host: Host) -> None:
        asking = ["systemctl", "is-system-running", "--wait"]
        deadline = time.monotonic() + READY_SECONDS
        # Until systemd answers at all there is nothing to wait at.
        while (state := host.run(asking, check=False).stdout.strip()) not in UP:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"the services in {host.name} do not come up within {READY_SECONDS:g} s: "
                    f"systemd says {state or 'nothing'}"
                )
            time.sleep(0.05)


class FolderRoot(Root):
    """The files of a folder, as they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def init(self) -> Sequence[str]:
        return (str(Path(require_program(PAUSE)).resolve()), "-P")

    def foresee(self, programs: Iterable[str], findings: Findings) -> None:
        findings.ask(require_program, PAUSE)
        findings.ask(self.lower)

    def lower(self) -> Path:
        if not self._folder.is_dir():
            raise MachineError(f"dut.root: there is no folder {self._folder}")
        return self._folder

    def shared(self) -> Sequence[Path]:
        return [Path(self.init[0])]

    def own(self, name: str, engine: type[Contained]) -> OwnFiles:
        return OwnFiles(self.lower(), self._image, lambda inner: engine(name).entered(inner))

    @property
    def _image(self) -> Image | None:
        return None


class ImageRoot(FolderRoot):
    """The files of an image of the user's, unpacked once."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._found: Unpacked | None = None

    def lower(self) -> Path:
        return self._unpacked.root

    @property
    def _image(self) -> Image:
        return self._unpacked.told

    @property
    def _unpacked(self) -> Unpacked:
        if self._found is None:
            self._found = unpacked(self._reference, CACHE)
        return self._found


ROOTS: Mapping[str, Root] = {"host": HostRoot(), "debian": DebianRoot()}
"""Every kind by its name in the experiment file."""


def _codename() -> str:
    """The name of this machine's release of Debian. Raises `MachineError` on other machines."""
    with contextlib.suppress(OSError, KeyError):
        release = python_platform.freedesktop_os_release()
        if release["ID"] == "debian":
            return release["VERSION_CODENAME"]
    raise MachineError(
        "dut.root: debian needs a Debian machine, for its sources of packages and its "
        "Python: take dut.root: host"
    )


def _folder(codename: str) -> Path:
    kinds = ",".join(PACKAGES)
    return CACHE / f"debian-{codename}-{hashlib.sha256(kinds.encode()).hexdigest()[:8]}"


def _make(folder: Path, codename: str, packages: str) -> None:
    """Make the root at `folder`, which appears whole or not at all."""
    sources = _sources(codename)
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=CACHE))
    command = [MAKER, "--quiet", "--variant=minbase", f"--include={packages}"]
    try:
        LocalHost().run([*command, codename, f"{draft}/root", "-"], stdin=sources, seconds=3600)
        with contextlib.suppress(OSError):  # another run has made it meanwhile
            (draft / "root").rename(folder)
    except CommandFailed as error:
        raise MachineError(f"cannot make a root file system of Debian: {error.reason}") from error
    finally:
        LocalHost().run(["rm", "-rf", "--one-file-system", str(draft)])


def _sources(codename: str) -> str:
    """This machine's own sources of Debian's packages, one a line; sources.list(5)."""
    fields = "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    asked = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    lines: dict[str, None] = {}
    for row in LocalHost().run(asked).stdout.splitlines():
        origin, suite, uri, release, component = row.split("|")
        if origin == "Debian" and suite.startswith(codename) and "backports" not in suite:
            lines[f"deb {uri} {release} {component}"] = None
    if not lines:
        raise MachineError(
            f"apt knows no packages of Debian {codename} here: run `apt-get update`, or take "
            "dut.root: host"
        )
    return "".join(f"{line}\n" for line in lines)
