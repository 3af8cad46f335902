"""What is wrong with the kernel's command line, and with our entry for systemd-boot.

Each function gives one place with `FINE`, or with all that is wrong, a clause each: words, lists of
cores, contradictions, refusals. Our entry is a copy of an entry of one kernel (`host/loaders.py`
writes it). A new kernel brings an entry of its own, and the copy goes on booting the old one.
Entries are those of the Boot Loader Specification, type 1.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from tailtap.base.units import parse_cpus, ranges
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.scheduling import partitioned
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable, name_of

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
    option = BUILT.get(name_of(word))
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


class Listed(NamedTuple):
    """The CPUs in a value, and the flags before them."""

    flags: frozenset[str]
    cpus: frozenset[int]


ISOLATION = "domain"
"""The default of `isolcpus`: the scheduler keeps off its CPUs."""


def listed(value: str) -> Listed | None:
    """The CPUs of ``1-3,5`` or ``managed_irq,domain,1``; None for what is no list of them."""
    words = value.split(",")
    flags = list(takewhile(lambda word: not word[:1].isdigit(), words))
    try:
        cpus = parse_cpus(",".join(words[len(flags) :]))
    except ValueError:  # strides and groups: 0-31:1/2
        return None
    return Listed(frozenset(flags) or frozenset({ISOLATION}), frozenset(cpus)) if cpus else None


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


PLACES = ("/boot", "/efi", "/boot/efi")
"""Where the partitions with entries are mounted; systemd-boot(7)."""

ENTRY = "_-tailtap.conf"
"""Entries without a sort key are listed by their names as versions, the highest first, and the
first is booted where none is the default. Hardly a name is lower than one that begins with a dash;
``_`` does not count."""

COPIED = "# copied from "

_OURS = ("title", "sort-key", "options")
"""What differs from the entry that was copied: the last of the options are ours."""

_FILES = ("linux", "initrd", "efi", "devicetree")

Fields = Mapping[str, list[str]]


def entries(tree: Tree, folder: str) -> list[str]:
    """The names of the entries in a folder."""
    return [path.rpartition("/")[2] for path in tree.glob(f"{folder}/*.conf")]


def stale_entry(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """What a knob reads: all that is wrong with our entry, or that it is fine."""
    return {f"{_folder(tree)}/{ENTRY}": "; ".join(wrong_entry(tree, purpose)) or FINE}


def _folder(tree: Tree) -> str:
    """The folder that has our entry. Raises `Absent` without one."""
    folders = [f"{place}/loader/entries" for place in PLACES]
    folder = next((one for one in folders if tree.exists(f"{one}/{ENTRY}")), None)
    if folder is None:
        raise Absent("tailtap has written no entry for systemd-boot")
    return folder


def wrong_entry(tree: Tree, _purpose: Purpose) -> list[str]:
    """What of our entry is no more as it was when it was made, and what mends it."""
    folder = _folder(tree)
    text = tree.text(f"{folder}/{ENTRY}")
    ours = fields(text)
    base = next(
        (line.removeprefix(COPIED) for line in text.splitlines() if line.startswith(COPIED)), ""
    )
    others = {name: fields(tree.text(f"{folder}/{name}"))
              for name in entries(tree, folder) if name != ENTRY}  # fmt: skip
    newest = _newest(ours, others)
    found: list[str] = []
    place = folder.removesuffix("/loader/entries")
    gone = [file for key in _FILES for file in ours.get(key, ()) if not tree.exists(place + file)]
    found += [f"{ENTRY} boots {file}, which is not there" for file in gone]
    if base not in others:
        found.append(f"{ENTRY} is a copy of {base or 'an entry'}, which is not there")
    elif _apart(others[base]) != _apart(ours) or not _begins(ours, others[base]):
        found.append(f"{base} has changed since {ENTRY} was copied from it")
    if newest is not None:
        found.append(
            f"{ENTRY} boots {_version(ours)}, and {newest} boots the newer "
            f"{_version(others[newest])}"
        )
    mended = newest or (base if base in others else next(iter(others), None))
    if found and mended is not None:
        again = f"tailtap host bootline --install --entry {mended}"
        found.append(f"`{again}` makes it anew")
    return found


def fields(text: str) -> Fields:
    """The fields of an entry; some may be there several times."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key and not key.startswith("#"):
            found.setdefault(key, []).append(value.strip())
    return found


def _apart(entry: Fields) -> Fields:
    return {key: values for key, values in entry.items() if key not in _OURS}


def _begins(ours: Fields, base: Fields) -> bool:
    theirs = base.get("options", [])
    return ours.get("options", [])[: len(theirs)] == theirs


def _newest(ours: Fields, others: Mapping[str, Fields]) -> str | None:
    """The entry of the newest kernel of our flavour and system, if that is newer than ours."""
    same = [
        name
        for name, entry in others.items()
        if entry.get("machine-id") == ours.get("machine-id") and _flavour(entry) == _flavour(ours)
    ]
    name = max(same, key=lambda name: by_version(_version(others[name])), default=None)
    if name is None or by_version(_version(others[name])) <= by_version(_version(ours)):
        return None
    return name


def _version(entry: Fields) -> str:
    return (entry.get("version") or [""])[-1]


def by_version(version: str) -> list[tuple[int, str]]:
    """Versions by their numbers; a part behind ``~``, or ``-rc``, is before what it leads to."""
    parts = re.findall(r"\d+|[a-z]+|~", version.replace("-rc", "~rc"))
    ranks = {"~": (-3, "")}
    found = [(int(part), "") if part.isdigit() else ranks.get(part, (-1, part)) for part in parts]
    return [*found, (-2, "")]


def _flavour(entry: Fields) -> tuple[str, ...]:
    """What tells kernels of one version apart: the words without a number, such as ``rt``."""
    return tuple(part for part in re.split(r"[-.+_~]", _version(entry)) if part.isalpha())
