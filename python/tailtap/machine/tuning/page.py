"""docs/host.md, made from the table of knobs.

`python -m tailtap.machine.tuning.page` prints it; a test compares it with the file.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from tailtap.machine.knobs import KNOBS
from tailtap.machine.knobs.knob import GROUPS, Group, Knob
from tailtap.machine.knobs.purpose import EVERY, ROLES, Purpose
from tailtap.machine.knobs.tree import Absent, Tree, Unreadable

HEAD = """# Making a host ready

Made from the program's own table of knobs by `make docs`; a test fails when it is stale.

`tailtap host audit` says what on a machine adds tail latency, what it should be for a purpose, why,
and who says so. `tailtap host apply` sets what can be set while the machine runs, and `tailtap host
revert` puts it back.

```sh
tailtap host audit --role container --cpus 2-5 --housekeeping 0-1
sudo tailtap host apply --dry-run --cpus 2-5
sudo tailtap host apply timers memory --cpus 2-5
sudo tailtap host revert
tailtap host bootline --cpus 2-5
```

## The purpose

`--role` says what the machine is: `bare-metal`, `container` and `vm-host` are machines that devices
under test run on, `vm-guest` is a virtual machine, `generator` sends packets. `--cpus` are the
device's cores (the generator's, for that role), `--housekeeping` those for everything else, and
`--interface` the network interfaces that packets come and go by. Without options the role is
`vm-guest` in a virtual machine and else `bare-metal`; the device's cores are those that the kernel
isolates, else all but the first core; and interfaces are all that have a device behind them.

## Answers

- *met*: every place has a value that will do. Values are compared by what they mean: `0000000f` and
  `f` are one mask.
- *not-met*: the only answer that makes the exit status 1. `steal` does not: a guest cannot mend
  what its host takes, and a share of all time since boot goes on standing there when the host is
  mended. It is *not-met* above 0.1 %, as for `tailtap doctor`. Each run measures what is taken
  meanwhile, and warns.
- *not-applicable*: it is not there, it does not matter for this role, or it is only there to
  compare. The reason is said. What is there decides, not the kernel's version.
- *unknown*: it cannot be read, mostly for want of root.

## What apply does

The plan comes first. What is met is not touched: writing a value that is there already restarts
some drivers. Each change is entered in a journal before it is made, and read back. When the machine
refuses one, all are put back, and the message names it. Places that the kernel manages itself, such
as interrupts of some drivers, may refuse; they are told, and the rest stands.

A card whose number of queues changes has new interrupts and queues. They get the CPUs that those
before had in their place, and after `revert` they have those from before. Threads that poll it
(threaded NAPI) end with its queues: new ones run as the kernel starts them.

What is *disruptive* takes links down or stops what runs. It is set with `--disruptive` only, and
never on the interface of the default route.

What the kernel grants to a process alone, as `wake-up-time`, ends with that process. `apply` leaves
it; an experiment that names it in `dut.tuning` holds it while it runs.

The tuning stays when the command has ended. No daemon keeps it: a reboot ends it, and so does
`tailtap host revert`, which undoes all of it, newest first, also after a `kill -9`. What somebody
else has changed in the meantime is left as it is, and named. `tailtap clean` leaves the tuning
alone. A measurement may change the same values while it runs; it puts them back to what was tuned.

## The kernel's command line

`tailtap host bootline` prints the words for a purpose, with a reason for each. Words that this
kernel was not built for, or said that it does not know, are left out, and so is what is only there
to compare, unless `--with KNOB` names it. What contradicts is told.

`--install` writes one file of tailtap's own, shows the difference, and says what to call next:

- For GRUB that is `/etc/default/grub.d/99-tailtap.cfg`, where grub-mkconfig reads that folder, as
  Debian's and Ubuntu's does. Recovery entries stay without the words, as a way back. tailtap does
  not call update-grub, which writes a menu that belongs to the system, with whatever else has
  changed.
- For systemd-boot it is `_-tailtap.conf`, a copy of the entry that was booted (or of `--entry`).
  The old entry stays the default, and `bootctl set-oneshot _-tailtap.conf` boots the copy once. It
  is of one kernel. `tailtap host audit` and `bootline` say when a newer one has an entry, when the
  copied entry has changed, and when a file is gone, and name the entry to copy then.

A word that other files give already is not written again; one with another value there is an error,
as a kernel takes the first of two lists of isolated cores, and the last of other words. tailtap
never reboots. After the reboot, `tailtap host audit` says what the kernel took. `--remove` and
`tailtap host revert` remove the file; a file that somebody else has changed or written is left.

## For other programs

`tailtap host export --format tuned|sysctl|ansible` writes the same values as a tuned profile, a
file for sysctl.d, or a task list of Ansible that needs modules of ansible.builtin only. Each has
the reason as a comment. Comments at the end name the knobs that such a file cannot set, that do not
apply to this machine, and those that take links down. What will do already is left out, too.

## What it was tried on

Values of /proc and /sys, control groups and kernel threads are set and put back on the machine that
runs the tests, and on files that tell of others; each of these files says where its facts are from.
The kernel's line is booted in guests of vanilla and real-time kernels. Cards are emulated ones of
Intel's drivers e1000e and igb. The exported files are read or set by tuned, sysctl and Ansible.

No machine with the following was at hand. Files or a program stand in for them, which do what the
kernel's sources and documentation say:

- resctrl (Intel RDT, AMD PQoS): `cache-ways`, `memory-bandwidth`
- the energy counters of processors (RAPL), and a management controller (IPMI by `ipmitool`): the
  `energy` of a run
- physical processors' frequencies, turbo and idle states, and sibling threads

## Risk

0 is harmless. 1 costs something elsewhere: energy, throughput, other programs. 2 can harm the
machine or others when something goes wrong. 3 takes away protection.

## Knobs

Knobs marked *compare* help some loads and harm others, or sources disagree. They are set only when
they are named, so that an experiment can tell. The wanted value is that of a bare-metal machine (or
the first role that is listed) whose device has the cores 2 to 5, with cores 0 and 1 for the rest.
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
    """docs/host.md."""
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
    marks = [knob.settable if knob.settable != "no" else "read only", f"risk {knob.risk}"]
    marks += ["disruptive"] if knob.disruptive else []
    marks += [] if knob.recommended else ["*compare*"]
    marks += [f"since {knob.since}"] if knob.since else []
    marks += [] if knob.roles == EVERY else [f"for {', '.join(roles)}"]
    wanted = word = ""
    try:
        wanted = f" Wanted: `{knob.wish(purpose, tree).told(knob.where.form)}`."
        word = f" Word: `{knob.word(purpose, tree)}`." if knob.word else ""
    except (Absent, Unreadable):
        pass
    removes = f" Removes: {', '.join(knob.removes)}." if knob.removes else ""
    text = (
        f"`{knob.name}` ({', '.join(marks)}): {knob.why} Place: `{knob.where.place}`.{wanted}"
        f"{word}{removes} Source: {knob.source}."
    )
    return textwrap.fill(
        text, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


if __name__ == "__main__":
    print(page(), end="")
