"""The first files of a guest: a shell, the modules that it needs to reach ours, and `init.sh`."""

from __future__ import annotations

import gzip
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from tailtap.base.errors import InputError
from tailtap.lab.platforms.vm.domain import PORT
from tailtap.lab.platforms.vm.kernels import Kernel, shell
from tailtap.remote import CommandFailed, agent
from tailtap.remote.local import LocalHost

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
