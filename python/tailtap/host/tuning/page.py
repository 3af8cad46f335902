"""docs/reference/host.md, made from the table of knobs.

`python -m tailtap.host.tuning.page` prints it; a test compares it with the file.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import GROUPS, Group, Knob
from tailtap.host.knobs.tree import EVERY, ROLES, Absent, Purpose, Tree, Unreadable

HEAD = """# The knobs of a host

For whoever wants to know what a knob is, why it matters and who says so. [Make a host
ready](../howto/host.md) says how to set them. Made from the program's own table by `make docs`; a
test fails when it is stale.

## Answers

- *met*: every place has a value that will do, by its meaning: `0000000f` and `f` are one mask.
- *not-met*: the only answer that makes the exit status 1, but for `steal` (above 0.1 % of all time
  since boot), which a guest cannot mend.
- *not-applicable*: it is not there, does not matter for this role, or is only there to compare.
- *unknown*: it cannot be read, mostly for want of root.

## Risk

0 is harmless. 1 costs something elsewhere: energy, throughput, other programs. 2 can harm the
machine or others when something goes wrong. 3 takes away protection.

## Knobs

Behind what a knob does stand its place with the value that is wanted, or the word for the kernel's
command line; the causes of late packets that it removes; and who says so. The value is that of a
bare-metal machine (or the first role that is listed) whose device has the cores 2 to 5, with cores
0 and 1 for the rest. A knob is set while the machine runs (*runtime*) and has risk 1 where nothing
else is said. Those marked *compare* help some loads and harm others, or sources disagree: they are
set only when they are named.
"""
EXAMPLE = ((2, 3, 4, 5), (0, 1), ("eth1",))
TITLES: dict[Group, str] = {
    "cpus": "Cores and the kernel's command line",
    "interrupts": "Interrupts and workers",
    "timers": "Timers, watchdogs and kernel threads",
    "memory": "Memory",
    "frequency": "Frequency and idle states",
    "cards": "Network cards",
    "scheduling": "Scheduling",
    "guests": "Virtual machines",
    "services": "Other programs",
}


def page() -> str:
    """docs/reference/host.md."""
    parts = [HEAD]
    for group in GROUPS:
        rows = [knob for knob in KNOBS if knob.group == group]
        if rows:
            parts.append(f"### {TITLES[group]} (`{group}`)\n")
            parts += [_entry(knob) for knob in rows]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _entry(knob: Knob) -> str:
    roles = [role for role in ROLES if role in knob.roles]
    tree = Tree(Path("/nonexistent"))
    purpose = Purpose(roles[0], *EXAMPLE)
    marks = {"runtime": [], "boot": ["boot"], "no": ["read only"]}[knob.settable]
    marks += [] if knob.risk == 1 else [f"risk {knob.risk}"]
    marks += ["disruptive"] if knob.disruptive else []
    marks += [] if knob.recommended else ["*compare*"]
    marks += [f"since {knob.since}"] if knob.since else []
    if knob.roles != EVERY:
        left = [role for role in ROLES if role not in knob.roles]
        marks.append(f"not for {left[0]}" if len(left) == 1 else f"for {', '.join(roles)}")
    wanted = word = ""
    try:
        wanted = f": `{knob.wish(purpose, tree).told(knob.where.form)}`"
        word = f", or `{knob.word(purpose, tree)}`" if knob.word else ""
    except (Absent, Unreadable):
        pass
    removes = f" Removes {', '.join(knob.removes)}." if knob.removes else ""
    marked = f" ({', '.join(marks)})" if marks else ""
    text = (
        f"`{knob.name}`{marked}: {knob.why} `{knob.where.place}`{wanted}{word}.{removes} "
        f"({knob.source})"
    )
    return textwrap.fill(
        text, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


if __name__ == "__main__":
    print(page(), end="")
