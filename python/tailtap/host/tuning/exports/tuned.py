"""A profile of tuned: tuned.conf in a folder of its own below /etc/tuned.

Its plugin for sysfs takes paths below /sys with ``*``, the one for sysctls takes names as sysctl(8)
does, and the one for boot loaders adds words to the kernel's line (tuned.conf(5), tuned's
plugin_sysfs.py and plugin_sysctl.py).
"""

from __future__ import annotations

from tailtap.host.tuning.exports.content import Content, Export, head, reason, sysctl_key, tail

SYSFS = "/sys/"


def write(content: Content) -> Export:
    """The sysctls, the files of /sys, and the words of the kernel's line."""
    lines = [*head(content), "[main]", "summary=Low tail latency, from tailtap's table of knobs"]
    sysctls: list[str] = []
    files: list[str] = []
    left = list(content.left)
    for setting in content.settings:
        why = reason(setting.knob)
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
        reasons = [reason(word.knob) for word in content.words]
        lines += ["", "[bootloader]", *reasons, f"cmdline_tailtap={content.line}"]
    return Export("\n".join([*lines, *tail(left), ""]), left)
