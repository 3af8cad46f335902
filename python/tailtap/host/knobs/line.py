"""What is wrong with the kernel's command line: words, lists of cores, contradictions, refusals.

Each function gives one place with `FINE`, or with all that is wrong, a clause each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache

from tailtap.base.units import parse_cpus, ranges
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.groups import partitioned
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree, Unreadable

FINE = "nothing wrong"
_PLACE = "/proc/cmdline"
_LISTS = ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "kthread_cpus")
_FLAGS = {"isolcpus": ("nohz", "domain", "managed_irq")}
KNOWN = frozenset((
    *_LISTS, "rcu_nocb_poll", "nohz", "skew_tick", "tsc", "nosoftlockup", "nowatchdog", "mce",
    "idle", "intel_idle.max_cstate", "processor.max_cstate", "intel_pstate", "amd_pstate", "nosmt",
    "mitigations", "audit", "hugepages", "hugepagesz", "default_hugepagesz", "transparent_hugepage",
    "iommu", "intel_iommu", "amd_iommu", "pcie_aspm", "rcupdate.rcu_normal_after_boot",
    "rcupdate.rcu_expedited", "rcutree.kthread_prio", "rcutree.nohz_full_patience_delay", "preempt",
    "threadirqs", "nmi_watchdog", "numa_balancing", "clocksource",
    "systemd.unified_cgroup_hierarchy", "no_ipi_broadcast", "maxcpus", "nr_cpus", "watchdog_thresh",
    "workqueue.unbound_cpus",
))  # fmt: skip
"""Parameters that a machine is tuned with."""
_USER_SPACE = re.compile(
    r"(BOOT_IMAGE|splash|nosplash|rd\.|systemd\.|udev\.|fsck\.|plymouth\.|luks|net\.ifnames"
    r"|biosdevname|crashkernel|resume|ds|cloud-init|apparmor|security|selinux|ostree|ip|vt\.)"
)
"""What the kernel does not know, and programs behind it do; or what belongs to a distribution."""
_ALIKE = 0.75
"""How alike two words are of which one is the other misspelt: ``isolated_cpus``, ``isolcpus``."""
_SHORT = 6
"""Shorter words are too often alike."""


def unknown_words(tree: Tree, _purpose: Purpose) -> list[str]:
    """Words that the kernel says it does not know, or that look like known ones misspelt."""
    names = [word.partition("=")[0] for word in tree.words]
    told = told_unknown(tree)
    wrong: list[str] = []
    for name in dict.fromkeys(names):
        plain = name.replace("-", "_")
        if plain in KNOWN or _USER_SPACE.match(name):
            continue
        meant = difflib.get_close_matches(plain, KNOWN, n=1, cutoff=_ALIKE)
        if told is not None and name in told:
            hint = f", perhaps {meant[0]}" if meant else ""
            wrong.append(f"the kernel does not know {name}{hint}")
        # What has a dot is a module's, and nobody complains of it.
        elif (
            (told is None or "." in name)
            and meant
            and len(name) >= _SHORT
            and not _module(tree, plain)
        ):
            wrong.append(f"{name} is perhaps {meant[0]} misspelt")
    return wrong


def told_unknown(tree: Tree) -> set[str] | None:
    """Names of words that the kernel's log calls unknown; None without the log of the boot."""
    lines = _boot_log(tree)
    if lines is None:
        return None
    found = (
        re.search(r"Unknown kernel command line parameters [\"'](.*)[\"']", line) for line in lines
    )
    return {word.partition("=")[0] for match in found if match for word in match[1].split()}


def _boot_log(tree: Tree) -> list[str] | None:
    """The kernel's log, from its first line on; None when that may not be read, or is gone."""
    return _log_here() if tree.is_live else _log_of(tree)


@cache
def _log_here() -> list[str] | None:
    """That of this machine, read once: what it says of the boot stays, and it is long."""
    return _log_of(Tree())


def _log_of(tree: Tree) -> list[str] | None:
    try:
        lines = tree.messages()
    except Unreadable:
        return None
    return lines if any(line.startswith("Linux version") for line in lines[:5]) else None


def offloaded(tree: Tree) -> tuple[int, ...] | None:
    """The cores whose RCU callbacks run elsewhere, as the kernel's log tells.

    Without the log: those that the line names and that have a thread for it. None when neither can
    be seen. Raises `Absent` or `Unreadable` without a command line.
    """
    lines = _boot_log(tree)
    if lines is not None:
        told = (re.search(r"Offload RCU callbacks from CPUs: ([-\d,]+)", line) for line in lines)
        return next((parse_cpus(match[1]) for match in told if match), ())
    threads = facts.rcu_threads(tree.root)
    if not threads and not facts.shows_kernel_threads(tree.root):
        return None
    if tree.config("RCU_NOCB_CPU_DEFAULT_ALL"):
        return threads
    named = _given(tree, "rcu_nocbs") | _given(tree, "nohz_full")
    return tuple(cpu for cpu in threads if cpu in named)


def unknown_to_kernel(tree: Tree) -> list[str]:
    """Names of words that the kernel's log calls unknown, and that are for no program behind it."""
    told = told_unknown(tree) or ()
    return sorted(name for name in told if not _USER_SPACE.match(name))


def _module(tree: Tree, name: str) -> bool:
    """Whether it is a parameter of a module that is there."""
    module, dot, parameter = name.partition(".")
    return bool(dot) and tree.exists(f"/sys/module/{module}/parameters/{parameter}")


def wrong_lists(tree: Tree, _purpose: Purpose) -> list[str]:
    """Lists of cores that cannot be read, repeat a core, or name one that the machine lacks."""
    there = set(tree.cpus("/sys/devices/system/cpu/possible") or tree.online)
    wrong: list[str] = []
    for name in _LISTS:
        for value in tree.word(name):
            text = _without_flags(name, value)
            if not text:
                continue
            cpus = cores(text, max(there, default=0))
            if cpus is None:
                wrong.append(f"{name}={value} is no list of cores")
                continue
            if repeated := {cpu for cpu in cpus if cpus.count(cpu) > 1}:
                wrong.append(f"{name} names core {ranges(tuple(repeated))} twice")
            if beyond := set(cpus) - there:
                wrong.append(f"{name} names core {ranges(tuple(beyond))}, which is not there")
        if len(tree.word(name)) > 1:
            wrong.append(f"{name} is there {len(tree.word(name))} times")
    return wrong


def contradictions(tree: Tree, purpose: Purpose) -> list[str]:
    """Parameters that leave cores half isolated together."""
    given = {name: _given(tree, name) for name in _LISTS}
    isolated, tickless = given["isolcpus"], given["nohz_full"]
    offloaded, interrupts = given["rcu_nocbs"], given["irqaffinity"]
    wrong: list[str] = []
    if both := isolated & interrupts:
        wrong.append(f"irqaffinity puts interrupts on core {ranges(tuple(both))} of isolcpus")
    if alone := tickless - isolated - partitioned(tree):
        wrong.append(
            f"nohz_full has core {ranges(tuple(alone))}, which isolcpus does not keep free"
        )
    if "rcu_nocb_poll" in tree.words and not offloaded | tickless:
        wrong.append("rcu_nocb_poll polls for nobody without rcu_nocbs")
    online = set(tree.online)
    if isolated and online and not online - isolated:
        wrong.append("isolcpus leaves no core for everything else")
    if isolated and purpose.cpus and (other := isolated & set(purpose.housekeeping)):
        wrong.append(f"isolcpus keeps housekeeping core {ranges(tuple(other))} free")
    if tree.word("nosmt") and tree.word("mitigations")[-1:] == ["auto,nosmt"]:
        wrong.append("nosmt is said twice, the second time by mitigations=auto,nosmt")
    return wrong


BUILT = {
    "nohz_full": "NO_HZ_FULL",
    "rcu_nocbs": "RCU_NOCB_CPU",
    "rcu_nocb_poll": "RCU_NOCB_CPU",
    "isolcpus": "CPU_ISOLATION",
    "nosmt": "HOTPLUG_SMT",
    "intel_pstate": "X86_INTEL_PSTATE",
    "amd_pstate": "X86_AMD_PSTATE",
    "preempt": "PREEMPT_DYNAMIC",
    "threadirqs": "IRQ_FORCED_THREADING",
    "irqaffinity": "SMP",
    "skew_tick": "TICK_ONESHOT",
    "audit": "AUDIT",
    "nosoftlockup": "SOFTLOCKUP_DETECTOR",
    "nmi_watchdog": "HARDLOCKUP_DETECTOR",
    "numa_balancing": "NUMA_BALANCING",
    "transparent_hugepage": "TRANSPARENT_HUGEPAGE",
    "tsc": "X86_TSC",
}
"""The option with which a kernel is built that knows a parameter."""
_REFUSALS = re.compile(
    r"Housekeeping: (nohz_full= must match isolcpus=|.*[Ee]mpty|.*clearing|.*unsupported)"
    r"|isolcpus: [Ii]nvalid flag|NO_HZ_FULL.*(not|unable)|rcu_nocbs=.*(not|ignored)"
    r"|Malformed early option|Booting kernel: `.*' invalid for parameter",
    re.IGNORECASE,
)


def not_built(tree: Tree, word: str) -> str | None:
    """The option that the kernel would need for a word, where it was built without it."""
    option = BUILT.get(word.partition("=")[0].replace("-", "_"))
    return option if option is not None and tree.config(option) is False else None


def refused(tree: Tree, _purpose: Purpose) -> list[str]:
    """Parameters of the line that the kernel was not built for, or refused in its log."""
    wrong = [
        f"{name} does nothing: the kernel was built without {option}"
        for name, option in BUILT.items()
        if tree.word(name) and tree.config(option) is False
    ]
    try:
        wrong += [f"the kernel says: {line}" for line in tree.messages() if _REFUSALS.search(line)]
    except Unreadable:
        if not wrong and not any(tree.config(option) is not None for option in BUILT.values()):
            raise
    return wrong


def _given(tree: Tree, name: str) -> set[int]:
    """The cores that a parameter names; empty without it, or when nobody can read them."""
    last = max(tree.cpus("/sys/devices/system/cpu/possible") or tree.online, default=0)
    values = tree.word(name)
    return set(cores(_without_flags(name, values[-1]), last) or ()) if values else set()


def _without_flags(name: str, value: str) -> str:
    parts = value.split(",")
    while parts and parts[0] in _FLAGS.get(name, ()):
        parts.pop(0)
    return ",".join(parts)


def cores(text: str, last: int) -> list[int] | None:
    """A list of cores as the kernel's command line takes it; None for another text.

    ``0-2,8``, ``all``, ``N`` for the last one, and ``0-15:2/4`` for two of each four;
    Documentation/admin-guide/kernel-parameters.rst.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(all|(\d+|N)(?:-(\d+|N))?)(?::(\d+)/(\d+))?", part.strip())
        if match is None:
            return None
        whole, first, end, used, group = match.groups()
        low, high = (0, last) if whole == "all" else (_core(first, last), _core(end or first, last))
        if high < low or (group is not None and int(group) == 0):
            return None
        step = range(low, high + 1)
        found += [cpu for cpu in step if group is None or (cpu - low) % int(group) < int(used)]
    return found


def _core(text: str, last: int) -> int:
    return last if text == "N" else int(text)


def said(
    check: Callable[[Tree, Purpose], list[str]],
) -> Callable[[Tree, Purpose], Mapping[str, str]]:
    """What a knob reads by a check: all that is wrong, or that it is fine."""

    def find(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        return {_PLACE: "; ".join(check(tree, purpose)) or FINE}

    return find
