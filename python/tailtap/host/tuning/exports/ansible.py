"""A task list of Ansible, with modules of ansible.builtin only.

A task writes what differs and reports a change when a file says something else afterwards. Files
that a machine does not have are passed over. The words of the kernel's line go into a drop-in of
GRUB, and its menu is written anew; that is what calling Ansible asks for.
"""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from tailtap.host.loaders.grub import SETTINGS, assignment
from tailtap.host.tuning.exports.content import Content, Export, Setting, head, reason, tail

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


def write(content: Content) -> Export:
    """A task for each knob, and three for the kernel's line."""
    lines = ["---", *head(content)]
    for setting in content.settings:
        lines += ["", reason(setting.knob), _yaml(_task(setting))]
    if content.words:
        lines += ["", *(reason(word.knob) for word in content.words)]
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
