"""What is exported: values for files, words for the kernel's line, and what is in neither."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tailtap.base.units import ranges
from tailtap.host.changes.kernel_values import Form, same
from tailtap.host.knobs import named, select
from tailtap.host.knobs.knob import Files, Knob
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable
from tailtap.host.loaders import SETTINGS, assignment
from tailtap.host.tuning.apply import judge
from tailtap.host.tuning.bootline import bootline
from tailtap.records.printed import WordRow

HEAD = "# Made by `tailtap host export`"
SYSCTLS = "/proc/sys/"
Left = Sequence[tuple[str, str]]
"""Knobs that a file does not set: the name, and why, a clause."""


@dataclass(frozen=True)
class Setting:
    """One knob as a value in files."""

    knob: Knob
    paths: Sequence[str]
    """Absolute; they may hold ``*``."""
    value: str
    form: Form
    optional: bool

    @property
    def is_sysctl(self) -> bool:
        return all(path.startswith(SYSCTLS) for path in self.paths)


@dataclass(frozen=True)
class Content:
    """All that is exported for a purpose."""

    purpose: Purpose
    settings: Sequence[Setting]
    words: Sequence[WordRow]
    left: Left

    @property
    def line(self) -> str:
        return " ".join(row.word for row in self.words)


@dataclass(frozen=True)
class Export:
    """A file of another program."""

    text: str
    left: Left


Format = Callable[[Content], Export]


def content(
    tree: Tree, purpose: Purpose, names: Sequence[str] = (), also: Sequence[str] = ()
) -> Content:
    """What sets the knobs or groups `names`, all that are recommended by default.

    A knob that is only to compare must be named itself, or be in `also`, which adds to the others.
    Raises `InputError` for an unknown name.
    """
    asked = {*names, *also}
    chosen = [*select(names), *(select(also) if also else [])]
    rows = [knob for knob in chosen if knob.recommended or knob.name in asked]
    settings: list[Setting] = []
    left: list[tuple[str, str]] = []
    for knob in dict.fromkeys(rows):
        if purpose.role in knob.roles and knob.where.settable:
            try:
                settings.append(_setting(knob, tree, purpose))
            except (Absent, Unreadable) as reason:
                left.append((knob.name, str(reason)))
    words: Sequence[WordRow] = ()
    if not names or _worded(names):
        line = bootline(tree, purpose, _worded(names), _worded(also))
        words = line.words
        left += [(one.name, one.why) for one in line.left]
    done = {one.knob.name for one in settings} | {row.knob for row in words}
    rest = {name: why for name, why in left if name not in done}
    return Content(purpose, settings, words, list(rest.items()))


def _setting(knob: Knob, tree: Tree, purpose: Purpose) -> Setting:
    """Where the value of a knob goes. Raises `Absent` or `Unreadable` when nobody can say."""
    judged = judge(knob, tree, purpose)
    if judged.answer == "not-applicable" and not judged.differs:
        raise Absent(judged.why)
    if knob.disruptive:
        typed = "tailtap host apply --disruptive"
        raise Absent(f"setting it takes links down: `{typed}` sets it")
    where = knob.where
    if not isinstance(where, Files):
        raise Absent("what it is set in differs between machines: `tailtap host apply` finds it")
    value = knob.wish(purpose, tree).value
    there = knob.read(tree, purpose).values()
    if judged.answer == "met" and not all(same(text, value, where.form) for text in there):
        raise Absent(f"{judged.value} will do, and is there already")
    return Setting(knob, where.patterns(purpose), value, where.form, where.optional)


def _worded(names: Sequence[str]) -> list[str]:
    """Groups, and knobs that a word sets."""
    knobs = {name: named(name) for name in names}
    return [name for name, knob in knobs.items() if knob is None or knob.word is not None]


def head(content: Content) -> list[str]:
    """What each file begins with."""
    purpose = content.purpose
    cores = ranges(purpose.cpus) or "no core of its own"
    rest = ranges(purpose.housekeeping)
    return [f"{HEAD} for the role {purpose.role}, device on {cores}, everything else on {rest}."]


def reason(name: str, row: Knob | WordRow) -> str:
    """Why the knob `name` is set, and who says so, as a comment."""
    return f"# {name}: {' '.join(row.why.split())} ({row.source}; risk {row.risk})"


def tail(left: Iterable[tuple[str, str]]) -> list[str]:
    """What a file does not set, as comments."""
    rows = [f"# {name}: {' '.join(why.split())}" for name, why in left]
    return ["", "# Not set here:", *rows] if rows else []


def sysctl_key(path: str) -> str:
    """The name of a sysctl; slashes stand for dots in names of files, sysctl.d(5)."""
    return path.removeprefix(SYSCTLS).translate(str.maketrans("/.", "./"))


DROP_IN = "/etc/default/grub.d/98-tailtap-ansible.cfg"
"""Another name than that of `tailtap host bootline`, which has its own in a journal."""


class _Block(str):
    """A text of several lines, written as such."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """With texts of several lines as blocks."""


_Dumper.add_representer(
    _Block,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|"),
)


def _ansible(content: Content) -> Export:
    """A task for each knob, and three for the kernel's line."""
    lines = ["---", *head(content)]
    for setting in content.settings:
        lines += ["", reason(setting.knob.name, setting.knob), _yaml(_task(setting))]
    if content.words:
        lines += ["", *(reason(row.knob, row) for row in content.words)]
        lines += [_yaml(task) for task in _line(content)]
    if not (content.settings or content.words):
        lines.append("[]")
    return Export("\n".join([*lines, *tail(content.left), ""]), content.left)


def _yaml(task: dict[str, Any]) -> str:
    text: str = yaml.dump([task], Dumper=_Dumper, sort_keys=False, width=1000)
    return text.rstrip("\n")


def _task(setting: Setting) -> dict[str, Any]:
    name = f"tailtap_{setting.knob.name.replace('-', '_')}"
    return {
        "name": f"{setting.knob.name}: {setting.value}",
        "ansible.builtin.shell": _Block(_script(setting)),
        "register": name,
        "changed_when": f"{name}.stdout != ''",
    }


def _script(setting: Setting) -> str:
    """Writes the value into each file that does not say it, and names those that it changed."""
    value = shlex.quote(setting.value)
    chosen = f'*"["{value}"]"*' if setting.form == "choice" else value
    refused = "continue" if setting.optional else "exit 1"
    return "\n".join(
        [
            f"for file in {' '.join(setting.paths)}; do",
            '  [ -e "$file" ] || continue',
            '  before=$(cat "$file")',
            f'  case "$before" in {chosen}) continue ;; esac',
            f'  echo {value} > "$file" || {refused}',
            '  [ "$(cat "$file")" = "$before" ] || echo "$file"',
            "done",
            "",
        ]
    )


def _line(content: Content) -> list[dict[str, Any]]:
    """Tasks for machines with GRUB, as Debian and Ubuntu build it."""
    return [
        {
            "name": "kernel line: is there GRUB",
            "ansible.builtin.stat": {"path": SETTINGS},
            "register": "tailtap_grub",
        },
        {
            "name": f"kernel line: {content.line}",
            "ansible.builtin.copy": {
                "dest": DROP_IN,
                "mode": "0644",
                "content": _Block(f"{head(content)[0]}\n{assignment(content.line)}\n"),
            },
            "when": "tailtap_grub.stat.exists",
            "register": "tailtap_line",
        },
        {
            "name": "kernel line: GRUB's menu",
            "ansible.builtin.command": "update-grub",
            "when": "tailtap_line is changed",
        },
    ]


def _sysctl(content: Content) -> Export:
    lines = head(content)
    left = list(content.left)
    for setting in content.settings:
        if setting.is_sysctl:
            lines += ["", reason(setting.knob.name, setting.knob)]
            lines += [f"{sysctl_key(path)} = {setting.value}" for path in setting.paths]
        else:
            left.append((setting.knob.name, f"{', '.join(setting.paths)}: this is no sysctl"))
    known = {setting.knob.name for setting in content.settings}
    left += [
        (row.knob, f"{row.word} is for the kernel's command line")
        for row in content.words
        if row.knob not in known
    ]
    return Export("\n".join([*lines, *tail(left), ""]), left)


SYSFS = "/sys/"


def _tuned(content: Content) -> Export:
    lines = [*head(content), "[main]", "summary=Low tail latency, from tailtap's table of knobs"]
    sysctls: list[str] = []
    files: list[str] = []
    left = list(content.left)
    for setting in content.settings:
        why = reason(setting.knob.name, setting.knob)
        if setting.is_sysctl:
            sysctls += [why, *(f"{sysctl_key(path)}={setting.value}" for path in setting.paths)]
        elif all(path.startswith(SYSFS) for path in setting.paths):
            files += [why, *(f"{path}={setting.value}" for path in setting.paths)]
        else:
            places = ", ".join(setting.paths)
            left.append((setting.knob.name, f"tuned has no plugin that writes {places}"))
    for name, section in (("sysctl", sysctls), ("sysfs", files)):
        lines += ["", f"[{name}]", *section] if section else []
    if content.words:
        reasons = [reason(row.knob, row) for row in content.words]
        lines += ["", "[bootloader]", *reasons, f"cmdline_tailtap={content.line}"]
    return Export("\n".join([*lines, *tail(left), ""]), left)


FORMATS: dict[str, Format] = {
    "tuned": _tuned,
    "sysctl": _sysctl,
    "ansible": _ansible,
}
