"""A file for sysctl.d(5)."""

from __future__ import annotations

from tailtap.host.tuning.exports.content import Content, Export, head, reason, sysctl_key, tail


def write(content: Content) -> Export:
    """The sysctls; all other knobs are left."""
    lines = head(content)
    left = list(content.left)
    for setting in content.settings:
        if setting.is_sysctl:
            lines += ["", reason(setting.knob)]
            lines += [f"{sysctl_key(path)} = {setting.value}" for path in setting.paths]
        else:
            left.append((setting.knob.name, f"{', '.join(setting.paths)}: this is no sysctl"))
    known = {setting.knob.name for setting in content.settings}
    left += [
        (word.knob.name, f"{word.text} is for the kernel's command line")
        for word in content.words
        if word.knob.name not in known
    ]
    return Export("\n".join([*lines, *tail(left), ""]), left)
