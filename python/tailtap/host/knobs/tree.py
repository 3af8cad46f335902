"""The files of a machine as the knobs read them: this machine's, or a recorded tree's.

A recorded tree is a folder with ``proc`` and ``sys`` in it, and with ``dev/kmsg`` when it has the
kernel's log. Nothing here changes anything.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tailtap.host.cpu.cpus import cpus_in
from tailtap.host.facts import machine as facts

_LOG_RECORD = 8192
"""The longest record of the kernel's log; Documentation/ABI/testing/dev-kmsg."""


class Absent(Exception):
    """A knob does not apply to this machine or purpose; the message is the reason, a clause."""


class Unreadable(Exception):
    """A knob cannot be judged here; the message is the reason, a clause."""


@dataclass(frozen=True)
class Tree:
    """The machine whose files are below `root`. Paths are absolute, as the machine sees them."""

    root: Path = Path("/")

    @property
    def is_live(self) -> bool:
        return self.root == Path("/")

    def at(self, path: str) -> Path:
        """Where the file `path` of the machine is."""
        return self.root / path.lstrip("/")

    def exists(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return self.at(path).exists()
        return False

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, numbers in their order.

        What goes while it is looked at, such as a control group, is not there: `Path.glob` fails.
        """
        words = pattern.lstrip("/")
        found = glob.iglob(words, root_dir=self.root, recursive=True)  # noqa: PTH207
        return sorted((f"/{path}" for path in found), key=_natural)

    def closed(self, path: str) -> str | None:
        """The folder on the way to `path` that this user may not look into, such as debugfs."""
        for folder in reversed(Path(path).parents):
            place = self.at(str(folder))
            with contextlib.suppress(OSError):
                if place.is_dir() and not os.access(place, os.X_OK):
                    return str(folder)
        return None

    def text(self, path: str) -> str:
        """The content of a file, without the newline at its end.

        Raises `Absent` when there is no such file, `Unreadable` when it cannot be read.
        """
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(f"there is no {path}") from None
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise Unreadable(f"{path} cannot be read: {reason}") from None

    def look(self, path: str) -> str | None:
        """The content of a file; None when it is missing, unreadable or empty."""
        return facts.read(self.at(path))

    @property
    def words(self) -> list[str]:
        """The kernel's words on its command line, in order; what is behind ``--`` is init's.

        Raises `Absent` or `Unreadable` without a command line.
        """
        line = self.text("/proc/cmdline")
        words = [word.strip('"') for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line)]
        return words[: words.index("--")] if "--" in words else words

    def word(self, name: str) -> list[str]:
        """The values of a parameter of the command line, in order; "" for one without a value.

        ``-`` and ``_`` are the same in names.
        """
        pairs = [word.partition("=") for word in self.words]
        same = name.replace("-", "_")
        return [value.strip('"') for key, _, value in pairs if key.replace("-", "_") == same]

    @property
    def online(self) -> tuple[int, ...]:
        """The CPUs that are switched on; empty when the machine does not say."""
        return self.cpus("/sys/devices/system/cpu/online")

    def cpus(self, path: str) -> tuple[int, ...]:
        """The CPUs in a list of the kernel's; empty when there is none."""
        return cpus_in(self.at(path))

    def config(self, option: str) -> bool | None:
        """Whether the kernel was built with ``CONFIG_`` `option`; None when nothing tells."""
        text = None
        with contextlib.suppress(OSError):
            text = gzip.decompress(self.at("/proc/config.gz").read_bytes()).decode("utf-8")
        text = text or self.look(f"/boot/config-{facts.kernel_release(self.root)}")
        if text is None:
            return None
        return re.search(rf"^CONFIG_{option}=[ym]$", text, re.MULTILINE) is not None

    def messages(self) -> list[str]:
        """The kernel's log, oldest line first. Raises `Unreadable` when it may not be read."""
        try:
            log = os.open(self.at("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise Unreadable(f"the kernel's log cannot be read: {error.strerror}") from None
        try:
            text = _all_records(log)
        finally:
            os.close(log)
        lines = (line.partition(";") for line in text.splitlines() if not line.startswith(" "))
        return [message for _, separator, message in lines if separator]

    def default_route(self) -> set[str]:
        """The interfaces by which this machine reaches others; never to be disturbed."""
        found = set()
        for line in (self.look("/proc/net/route") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[1] == fields[7] == "00000000":
                found.add(fields[0])
        for line in (self.look("/proc/net/ipv6_route") or "").splitlines():
            fields = line.split()
            if len(fields) > 9 and int(fields[0], 16) == int(fields[1], 16) == 0:
                found.add(fields[-1])
        return found - {"lo"}


def _all_records(log: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(log, _LOG_RECORD)
        except BlockingIOError:  # no more of them
            break
        except BrokenPipeError:  # records were overwritten meanwhile
            continue
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode("utf-8", errors="replace")


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
