"""The command line of a guest's kernel: what every guest has, what the table of knobs recommends
for that kernel, and what the experiment asks for.

The kernel has not booted yet. How it was built tells which words it understands: a word that would
do nothing is left out and named, as is one that `dut.boot` says otherwise.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.base.files import drafted, make_folder
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.dut import DutSpec
from tailtap.lab.platforms.options import KernelOptions
from tailtap.lab.platforms.vm.kernels import Kernel

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
        """All of it."""
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
