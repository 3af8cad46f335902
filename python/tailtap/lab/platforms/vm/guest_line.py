"""What a guest boots with: the command line of its kernel, and its first files.

The line has what every guest has, what the table of knobs recommends for that kernel, and what the
experiment asks for.

The kernel has not booted yet. How it was built tells which words it understands: a word that would
do nothing is left out and named, as is one that `dut.boot` says otherwise.
"""

from __future__ import annotations

import contextlib
import gzip
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tailtap.base.errors import InputError, MachineError, NotRead
from tailtap.base.files import drafted, make_folder
from tailtap.host.containers.container import Inner
from tailtap.host.knobs import KNOBS, select
from tailtap.host.knobs.knob import Files, Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable
from tailtap.host.tuning.apply import audit
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import KernelOptions
from tailtap.lab.platforms.dut import DutSpec, OwnFiles
from tailtap.lab.platforms.vm.domain import PORT
from tailtap.lab.platforms.vm.kernels import Kernel, shell
from tailtap.records.printed import AuditRecord
from tailtap.remote import CommandFailed, agent
from tailtap.remote.guest import GuestHost
from tailtap.remote.local import LocalHost

ALWAYS = "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1 random.trust_cpu=on"
"""A guest says what goes wrong, ends when it crashes, relies on its timer, and sends no packets
of its own."""


@dataclass(frozen=True)
class Line:
    """The words of one guest's kernel."""

    asked: str
    """What the experiment asks for, whichever way."""
    recommended: Mapping[str, str] = field(default_factory=dict)
    """Those of them that come from the table, by their knob."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Knobs of the table whose word is left out, and why, a clause."""

    @property
    def text(self) -> str:
        return f"{ALWAYS} {self.asked}".strip()


@dataclass(frozen=True)
class _NotBooted(Tree):
    """A kernel that has not booted: how it was built is known, and nothing else."""

    def text(self, path: str) -> str:
        try:
            return super().text(path)
        except Absent:
            raise Unreadable(f"{path} tells, and only once the kernel runs") from None


def purpose_of(spec: DutSpec[KernelOptions]) -> Purpose:
    """What the guest is for: CPU 0 is its own, the others are the DuT's."""
    return Purpose("vm-guest", tuple(range(1, len(spec.cpus) + 1)), (0,))


def rows() -> list[Knob]:
    """The knobs of a guest that words on the line set, and those that judge the line itself."""
    return [
        knob
        for knob in KNOBS
        if "vm-guest" in knob.roles and (knob.word is not None or knob.name.startswith("line-"))
    ]


def line_of(spec: DutSpec[KernelOptions], kernel: Kernel) -> Line:
    """The line of a guest with that kernel."""
    purpose = purpose_of(spec)
    asked = boot.filled_in(spec.options.boot, purpose.cpus)
    if not spec.tuned_boot:
        return Line(asked)
    own = {one.name: one for one in boot.parameters(asked)}
    words: dict[str, str] = {}
    left: dict[str, str] = {}
    with _not_booted(kernel) as tree:
        for knob in rows():
            if knob.word is None or not knob.recommended:
                continue
            try:
                word = knob.word(purpose, tree)
            except (Absent, Unreadable) as reason:
                left[knob.name] = str(reason)
                continue
            [parameter] = boot.parameters(word)
            if parameter.name in own:
                left[knob.name] = f"dut.boot says {own[parameter.name]}"
            elif option := not_built(tree, word):
                left[knob.name] = f"the kernel was built without {option}"
            else:
                words[knob.name] = word
    return Line(" ".join([*words.values(), asked]).strip(), words, left)


@contextlib.contextmanager
def _not_booted(kernel: Kernel) -> Iterator[Tree]:
    config = kernel.config
    text = "" if config is None else config.read_text(encoding="utf-8")
    realtime = "CONFIG_PREEMPT_RT=y" in text.splitlines()
    with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
        files = {
            "proc/sys/kernel/osrelease": kernel.release,
            "proc/sys/kernel/version": "PREEMPT_RT" if realtime else "not booted",
            **({f"boot/config-{kernel.release}": text} if text else {}),
        }
        write_tree(Path(folder), files)
        yield _NotBooted(Path(folder))


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a machine, by their paths, below `folder`."""
    for path, text in files.items():
        file = folder / path.lstrip("/")
        make_folder(file.parent, below=folder)
        with drafted(file, below=folder) as draft:
            draft.write(text.encode())


SHELL = "/run/busybox"
"""Where a guest keeps the shell that it booted with: it needs none of this machine's files."""
_CPU = "/sys/devices/system/cpu"
IOMMU = "/sys/class/iommu/dmar0/intel-iommu/version"
FILES = (
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/[0-9]*/comm",
    "/proc/irq/default_smp_affinity",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/version",
    *(f"{_CPU}/{name}" for name in ("online", "possible", "isolated", "nohz_full")),
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/fs/cgroup/cpuset.cpus.isolated",
    "/sys/kernel/realtime",
    IOMMU,
)
"""What is read, beside the files that a knob names; the rest is in the script."""
LOG = "/dev/kmsg"
INTERRUPTS = "/interrupts"
"""No file of a kernel: the CPUs that the ports' interrupts may go to."""
_TELL = """b=$1 release=$2; shift 2
$b grep -Hs '' $*
$b dmesg | $b sed -e 's|^\\[ *[0-9.]*\\] ||' -e 's|^|/dev/kmsg:6,0,0,-;|'
[ ! -e /proc/config.gz ] || $b zcat /proc/config.gz | $b sed "s|^|/boot/config-$release:|"
for irq in $(for port in /sys/class/net/*/device; do
        name=$($b readlink "$port") && $b sed -n \\
            "s/^ *\\([0-9]*\\):.* ${name##*/}\\(-[io][nu].*put.*\\|,.*\\)\\?$/\\1/p" \\
            /proc/interrupts
    done) \\
    $(cd /sys/class/net && $b ls tt-in/device/msi_irqs tt-out/device/msi_irqs 2> /dev/null \\
        | $b grep '^[0-9]*$')
do $b cat /proc/irq/$irq/smp_affinity_list; done | $b sort -u | $b sed 's|^|/interrupts:|'
"""


@contextlib.contextmanager
def recorded(guest: GuestHost, kernel: Kernel, purpose: Purpose) -> Iterator[Tree]:
    """The guest's files, as far as a run asks for them. Raises `MachineError`."""
    places = [one.where for one in rows() if isinstance(one.where, Files)]
    paths = dict.fromkeys([*FILES, *(path for one in places for path in one.patterns(purpose))])
    command = [SHELL, "sh", "-c", _TELL, "tell", SHELL, kernel.release, *paths]
    files: dict[str, list[str]] = {}
    for line in guest.run(command).stdout.splitlines():
        path, _, text = line.partition(":")
        files.setdefault(path, []).append(text)
    if not {"/proc/cmdline", "/proc/meminfo", LOG} <= files.keys():
        raise MachineError(f"the guest does not tell what it is: it has only {' '.join(files)}")
    config = f"/boot/config-{kernel.release}"
    if config not in files and kernel.config is not None:
        files[config] = kernel.config.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
        write_tree(Path(folder), {path: "\n".join([*text, ""]) for path, text in files.items()})
        yield Tree(Path(folder))


def judged(tree: Tree, purpose: Purpose) -> AuditRecord:
    """The audit of what words on the guest's line set, and of the line itself."""
    return audit(tree, purpose, [knob.name for knob in rows()])


def require_effect(found: AuditRecord, line: Line) -> None:
    """Raises `MachineError` when a word of the table does not do in the guest what it is for."""
    for row in found.rows:
        word = line.recommended.get(row.name)
        if word is not None and row.answer == "not-met":
            [knob] = select([row.name])
            raise MachineError(
                f"dut.tuning: the guest was booted with {word}, but its {knob.where.place} "
                f"says {row.value}: take a kernel that can do it, or dut.tuning: runtime"
            )


MODULES = ("virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay")
"""What a guest needs before it has this machine's files; the kernel loads the rest itself."""
FOLDERS = ("bin", "modules", "proc", "sys", "dev", "host", "memory", "root")


def _unpacked(module: bytes) -> bytes:
    import lzma  # which not every Python is compiled with

    return lzma.decompress(module)


READERS: Mapping[str, Callable[[bytes], bytes]] = {
    ".ko": bytes,
    ".xz": _unpacked,
    ".gz": gzip.decompress,
}
"""How to read a module, by the end of its name."""


def write(
    target: Path,
    kernel: Kernel,
    settings: Mapping[str, str],
    cards: Sequence[str] = (),
) -> None:
    """Write the archive for `kernel`.

    `settings` are the ``links`` (pairs of a MAC address and a name), their ``mtu``, and the
    ``cpus`` that take their interrupts. `cards` are aliases of the modules that drive the links
    when they are no virtio ones.

    Raises `InputError` when the kernel lacks a module that a guest needs.
    """
    host = LocalHost()
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        root = Path(temporary)
        for name in FOLDERS:
            (root / name).mkdir()
        shutil.copy2(shell(), root / "bin/busybox")
        init = root / "init"
        init.write_bytes(resources.files(__package__).joinpath("init.sh").read_bytes())
        init.chmod(0o755)
        inserted: list[str] = []
        for path in _modules(host, kernel, (*MODULES, *cards)):
            name = path.name.partition(".ko")[0] + ".ko"
            if name not in inserted:
                inserted.append(name)
                (root / "modules" / name).write_bytes(_read(path))
        content = {
            **settings,
            "insert": " ".join(inserted),
            "release": kernel.release,
            "modules": str(kernel.modules.resolve()),
            "port": PORT,
            "python": sys.executable,
            "agent": agent.program(),
        }
        lines = (f"{name}={shlex.quote(value)}\n" for name, value in content.items())
        (root / "settings").write_text("".join(lines), encoding="utf-8")
        pack = 'cd "$1" && find . | cpio --quiet -o -H newc > "$2"'
        host.run(["sh", "-c", pack, "pack", str(root), str(target)])


def _modules(host: LocalHost, kernel: Kernel, names: Sequence[str]) -> Iterator[Path]:
    """The modules in the order in which they are inserted, those they depend on first."""
    for name in names:
        command = ["modprobe", "-d", str(kernel.root), "-S", kernel.release, "--show-depends", name]
        try:
            told = host.run(command).stdout
        except CommandFailed as error:
            raise InputError(
                f"dut.kernel {kernel.name}: {kernel.modules} has no module {name}, which a guest "
                "of tailtap needs"
            ) from error
        for line in told.splitlines():
            kind, _, rest = line.strip().partition(" ")
            if kind == "insmod":  # the others are part of the kernel itself
                yield Path(rest.split()[0])


def _read(path: Path) -> bytes:
    reader = READERS.get(path.suffix)
    if reader is None:
        raise InputError("cannot read modules packed this way: unpack them, then depmod").at(path)
    return reader(path.read_bytes())


DISK = Path("/run/disk")
"""In the guest."""
QCOW2 = b"QFI\xfb"
"""How a file of QEMU's copy-on-write format begins; docs/interop/qcow2.txt of QEMU."""
MOUNT = f"""
modprobe virtio_blk || true
for tried in 1 2 3 4 5 6 7 8 9 10; do [ ! -e /sys/class/block/vda ] || break; sleep 0.2; done
mkdir -p {DISK}.lower {DISK}.memory {DISK}
mount -t tmpfs tmpfs {DISK}.memory
mkdir {DISK}.memory/upper {DISK}.memory/work
# The largest first: others are for booting.
for size in $(for one in /sys/class/block/vda*; do echo "$(cat $one/size):${{one##*/}}"; done \\
              | sort -t: -k1,1nr -k2,2r); do
    device=/dev/${{size#*:}}
    mount -o ro "$device" {DISK}.lower 2>/dev/null || continue
    if [ -d {DISK}.lower/etc ] || [ -d {DISK}.lower/bin ]; then found=$device; break; fi
    umount {DISK}.lower
done
if [ -z "${{found:-}}" ]; then
    echo "no file system with /etc or /bin on it can be mounted" >&2
    exit 1
fi
mount -t overlay -o lowerdir={DISK}.lower,upperdir={DISK}.memory/upper,workdir={DISK}.memory/work \\
    overlay {DISK}
for folder in dev proc sys; do mkdir -p {DISK}/$folder; mount --rbind /$folder {DISK}/$folder; done
echo "$found"
"""


def form(image: Path) -> str:
    """The format of a disk, as QEMU calls it. Raises `InputError` for what is no file."""
    try:
        with image.open("rb") as file:
            return "qcow2" if file.read(len(QCOW2)) == QCOW2 else "raw"
    except OSError as error:
        raise NotRead(error, f"cannot read {image}").at("dut.image") from error


@dataclass(frozen=True)
class FilesOfDisk(OwnFiles):
    """The files of a guest's disk."""

    guest: GuestHost

    def _require(self, program: str, path: str) -> None:
        folders = path.split(":") if "/" not in program else [""]
        places = [f"{self.root}{folder}/{program.lstrip('/')}" for folder in folders]
        command = ["sh", "-c", 'for one; do [ ! -e "$one" ] || exit 0; done; exit 1', "sh", *places]
        try:
            self.guest.run(command)
        except CommandFailed:
            raise MachineError(
                f"dut.options.command: the program {program} is not on the disk"
            ) from None


def mounted(guest: GuestHost, image: Path) -> tuple[FilesOfDisk, str]:
    """The files of the disk of a guest that is up, and the device that has them.

    Raises `MachineError` where nothing on it can be mounted.
    """
    try:
        device = guest.run(["sh", "-ec", MOUNT]).stdout.strip()
    except CommandFailed as error:
        raise MachineError(f"dut.image: {image}: {error.reason}") from error
    return FilesOfDisk(DISK, None, _entering, guest), device


def _entering(inner: Inner) -> list[str]:
    """What runs a command of the disk in the guest."""
    variables = [f"{name}={value}" for name, value in inner.environment.items()]
    return ["env", "-i", *variables, "chroot", str(DISK), *inner.words]
