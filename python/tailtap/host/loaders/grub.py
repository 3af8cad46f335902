"""GRUB, as Debian and its children build it: a drop-in that grub-mkconfig reads.

Only the normal menu entries get the words (GRUB_CMDLINE_LINUX_DEFAULT). The recovery entries stay
as they are, as a way back. tailtap does not call update-grub: that writes a menu which is not ours,
with whatever else has changed since it was written last.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from tailtap.base.errors import InputError, MachineError
from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders.boot_file import MARK
from tailtap.host.loaders.loader import Draft, lacking

SETTINGS = "/etc/default/grub"
DROP_IN = "/etc/default/grub.d/99-tailtap.cfg"
_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRAMS = ("grub-mkconfig", "grub2-mkconfig")
_VARIABLE = "GRUB_CMDLINE_LINUX_DEFAULT"
_GIVEN = re.compile(r"\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)")
"""What both make the line of a normal entry."""


class Grub:
    """GRUB with its drop-ins in /etc/default/grub.d."""

    name = "grub"

    def found(self, tree: Tree) -> bool:
        """Whether it is configured here."""
        return tree.exists(SETTINGS)

    def draft(self, tree: Tree, words: Sequence[tuple[str, str]], base: str | None) -> Draft:
        """The drop-in. Raises `MachineError` when this machine's GRUB reads none."""
        if base is not None:
            raise InputError("GRUB has no entries to copy: leave it out").at("--entry")
        program = _mkconfig(tree)
        if program is None or "default/grub.d" not in (tree.look(program) or ""):
            raise MachineError(
                f"the GRUB of this machine reads no {DROP_IN}: add the printed line to "
                f"{_VARIABLE} in {SETTINGS}"
            )
        others = _others(tree)
        mine = lacking(words, others)
        line = assignment(" ".join(word for word, _ in mine))
        reasons = [f"# {word}: {why}" for word, why in mine]
        text = "\n".join([MARK, *reasons, line, ""])
        return Draft(DROP_IN, text, others, None, self.afterwards(tree))

    def ours(self, tree: Tree) -> list[str]:
        """The drop-in."""
        return [DROP_IN]

    def afterwards(self, tree: Tree) -> str:
        """What writes GRUB's menu anew."""
        if any(tree.exists(f"{folder}/update-grub") for folder in _FOLDERS):
            return "call `update-grub`, then reboot"
        program = (_mkconfig(tree) or "grub-mkconfig").rpartition("/")[2]
        folder = program.removesuffix("-mkconfig")
        return f"call `{program} -o /boot/{folder}/grub.cfg`, then reboot"


def assignment(line: str) -> str:
    """The line of a shell script that adds words to normal entries."""
    return f'{_VARIABLE}="${_VARIABLE} "{shlex.quote(line)}'


def _mkconfig(tree: Tree) -> str | None:
    paths = (f"{folder}/{program}" for program in _PROGRAMS for folder in _FOLDERS)
    return next((path for path in paths if tree.exists(path)), None)


def _others(tree: Tree) -> list[str]:
    """The words that other files give to a normal entry, in the order of grub-mkconfig."""
    values: dict[str, list[str]] = {}
    files = [SETTINGS, *tree.glob(f"{DROP_IN.rpartition('/')[0]}/*.cfg")]
    for path in files:
        lines = (tree.look(path) or "").splitlines() if path != DROP_IN else []
        for match in filter(None, map(_GIVEN.fullmatch, lines)):
            name, added, value = match.groups()
            try:
                words = " ".join(shlex.split(value, comments=True)).split()
            except ValueError:  # more than an assignment in one line: nobody can tell
                continue
            plain = [word for word in words if "$" not in word]
            before = values.get(name, []) if added or plain != words else []
            values[name] = [*before, *plain]
    return [word for words in values.values() for word in words]
