"""What decides how an idle core sleeps, and which settings it listens to.

The kernel keeps files of drivers and governors that are not in use; they change nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.kernel_values import Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import DEVICE, WakeUp, wakeup_us
from tailtap.host.knobs.knob import Files, Place, fixed, known, on_the_line, written
from tailtap.host.knobs.tree import PHYSICAL, Absent, Purpose, Role, Tree, Unreadable

CPUIDLE = "/sys/devices/system/cpu/cpuidle"


def driver(tree: Tree) -> str:
    """The driver of idle states. Raises `Absent` where idle cores just halt."""
    found = tree.look(f"{CPUIDLE}/current_driver") or "none"
    if found == "none" and not tree.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*"):
        raise Absent("no cpuidle driver is in use: an idle core halts at once, whatever is set")
    return found


def governor(tree: Tree) -> str | None:
    """Who chooses among idle states; None where nobody says."""
    return tree.look(f"{CPUIDLE}/current_governor") or tree.look(f"{CPUIDLE}/current_governor_ro")


@dataclass(frozen=True)
class Driven(Files):
    """Files that only count while a driver of idle states, and perhaps this governor, is in use."""

    governor: str = ""

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        driver(tree)
        if self.governor and (found := governor(tree)) != self.governor:
            raise Absent(f"the governor {self.governor} is not in use, but {found or 'none'}")
        return super().read(tree, purpose)


CPU = "/sys/devices/system/cpu"
ABI = "Documentation/ABI/testing/sysfs-devices-system-cpu"
STATES = "Documentation/admin-guide/pm/intel_pstate.rst"
NO_SCALING = "no driver scales the frequency of this machine's processors"
BARE: frozenset[Role] = frozenset(("bare-metal", "generator"))
FIXED = "fixed"
QUICK_US = 1
"""Idle states that end within so many microseconds are as good as none."""


def _slow_states(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """The switches of the idle states of the device's cores that take long to leave."""
    _ = purpose.isolated
    states = [f"{CPU}/cpu{cpu}/cpuidle/state*/disable" for cpu in purpose.cpus]
    paths = [path for pattern in states for path in tree.glob(pattern)]
    if not paths:
        raise Absent("no idle states can be chosen here")
    slow = [path for path in paths
            if int(tree.text(f"{path.rpartition('/')[0]}/latency")) > QUICK_US]  # fmt: skip
    if not slow:
        raise Absent(f"every idle state ends within {QUICK_US} us")
    return {path: tree.text(path) for path in slow}


def _floor(pattern: str) -> Place:
    """The lowest frequency of each of some units, raised to the highest that it may have.

    `pattern` is that of the files with the lowest, as in `Files`.
    """
    lowest = Files(pattern)

    def find(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        files = lowest.read(tree, purpose)
        tops = {path: tree.text(_ceiling(path)) for path in files}
        return {
            path: FIXED if low == tops[path] else f"{low} to {tops[path]} kHz"
            for path, low in files.items()
        }

    def change(tree: Tree, purpose: Purpose, _value: str) -> Sequence[Resource]:
        tops: dict[str, list[str]] = {}
        for path in lowest.read(tree, purpose):
            tops.setdefault(tree.text(_ceiling(path)), []).append(path)
        return [one for top, paths in tops.items() for one in written(tree, paths, top, "number")]

    return Place(lowest.place, find, change=change)


def _ceiling(path: str) -> str:
    folder, _, file = path.rpartition("/")
    return f"{folder}/{file.replace('min', 'max')}"


def _wakeup_time(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """The time within which all processors are to wake up, as whoever holds the device wants it."""
    if not tree.exists(DEVICE):
        raise Absent("this kernel takes no such wish")
    driver(tree)
    try:
        return {DEVICE: str(wakeup_us(tree.at(DEVICE)))}
    except (OSError, struct.error) as error:
        reason = getattr(error, "strerror", error)
        raise Unreadable(f"{DEVICE} cannot be read: {reason}") from None


def _held(tree: Tree, _purpose: Purpose, value: str) -> Sequence[Resource]:
    if not tree.is_live:
        raise Absent("nobody can hold a file of a recorded machine")
    return [WakeUp(int(value))]


def _driven(tree: Tree, name: str) -> Wish:
    if driver(tree) != name:
        raise Absent(f"the driver {name} is not in use")
    return Wish("1", "at-most")


def _short(_purpose: Purpose, tree: Tree) -> Wish:
    """haltpoll heeds no limit but the shortest; drivers/cpuidle/governors/haltpoll.c."""
    driver(tree)
    return Wish("n/a") if governor(tree) == "haltpoll" else Wish(str(QUICK_US), also=("n/a",))


row = partial(known, group="frequency")
ROWS = (
    row(
        "governor",
        Files(f"{CPU}/cpu{{cpu}}/cpufreq/scaling_governor"),
        fixed("performance"),
        "A core that had little to do runs slower, and takes time to become fast.",
        "Documentation/admin-guide/pm/cpufreq.rst; tuned: profile network-latency",
        absent=NO_SCALING,
    ),
    row(
        "energy-preference",
        Files(f"{CPU}/cpu{{cpu}}/cpufreq/energy_performance_preference"),
        fixed(Wish("performance", also=("0",))),
        "The processor chooses its frequency itself, and weighs speed against energy.",
        f"{STATES}; tuned: profile network-latency",
        absent="the processor does not choose its frequency itself here",
    ),
    row(
        "energy-bias",
        Files(f"{CPU}/cpu{{cpu}}/power/energy_perf_bias", "number"),
        fixed("0"),
        "The processor weighs speed against energy when it changes frequencies and idle states.",
        "Documentation/admin-guide/pm/intel_epb.rst",
        absent="this processor has no such bias",
    ),
    row(
        "turbo",
        Files(f"{CPU}/intel_pstate/no_turbo", "switch"),
        fixed("1"),
        "How fast a core is beyond its base frequency depends on what others do and on warmth. "
        "Without that it is slower, and always the same.",
        f"{STATES}: no_turbo",
        roles=PHYSICAL,
        absent="the driver intel_pstate is not in use",
    ),
    row(
        "boost",
        Files(f"{CPU}/cpufreq/boost", "switch"),
        fixed("0"),
        "How fast a core is beyond its base frequency depends on what others do and on warmth. "
        "Without that it is slower, and always the same.",
        "Documentation/admin-guide/pm/cpufreq.rst: frequency boost",
        roles=PHYSICAL,
        absent="no driver offers such a switch",
    ),
    row(
        "lowest-frequency",
        _floor(f"{CPU}/cpu{{cpu}}/cpufreq/scaling_min_freq"),
        fixed(FIXED),
        "The governor chooses between a lowest and a highest frequency. With one alone the core "
        "is never slower.",
        "Documentation/admin-guide/pm/cpufreq.rst: scaling_min_freq; tuned: profile "
        "latency-performance, min_perf_pct",
        absent=NO_SCALING,
    ),
    row(
        "uncore-frequency",
        _floor(f"{CPU}/intel_uncore_frequency/package_*_die_*/min_freq_khz"),
        fixed(FIXED),
        "Caches between cores and the way to memory slow down when cores rarely use them, and "
        "take time to become fast.",
        "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        roles=PHYSICAL,
        absent="the driver intel_uncore_frequency is not in use",
    ),
    row(
        "wake-up-time",
        Place(DEVICE, _wakeup_time, "number", _held, held=True),
        fixed(Wish(str(QUICK_US), "at-most")),
        "All idle processors sleep as deeply as they like. An experiment that names this knob "
        "holds the wish for short sleeps while it runs. For the device's cores alone resume-"
        "latency will do.",
        "Documentation/power/pm_qos_interface.rst; tuned: profile latency-performance, "
        "force_latency",
    ),
    row(
        "resume-latency",
        Driven(f"{CPU}/cpu{{cpu}}/power/pm_qos_resume_latency_us"),
        _short,
        "An idle core sleeps as deeply as it likes. With this limit, in microseconds, it takes "
        "states that end in time; 0 is no limit, and n/a lets it poll.",
        "Documentation/ABI/testing/sysfs-devices-power: pm_qos_resume_latency_us",
    ),
    row(
        "deep-idle-states",
        Place(
            f"{CPU}/cpu*/cpuidle/state*/disable of slow states",
            _slow_states,
            "number",
            lambda tree, purpose, value: written(
                tree, _slow_states(tree, purpose), value, "number"
            ),
        ),
        fixed("1"),
        "A core that sleeps deeply takes tens of microseconds to wake up.",
        f"{ABI}: cpuidle; how-low-can-you-go, section 4.1",
    ),
    row(
        "intel-idle-limit",
        Files("/sys/module/intel_idle/parameters/max_cstate", "number", settable=False),
        lambda _purpose, tree: _driven(tree, "intel_idle"),
        "A core that sleeps deeply takes tens of microseconds to wake up. This limit is for all "
        "cores, from the start of the kernel on.",
        "Documentation/admin-guide/pm/intel_idle.rst; how-low-can-you-go, Table 1",
        roles=PHYSICAL,
        does="Limits how deeply all cores sleep, from the start of the kernel on.",
        word=lambda _purpose, tree: f"intel_idle.max_cstate={_driven(tree, 'intel_idle').value}",
    ),
    row(
        "acpi-idle-limit",
        Files("/sys/module/processor/parameters/max_cstate", "number", settable=False),
        lambda _purpose, tree: _driven(tree, "acpi_idle"),
        "A core that sleeps deeply takes tens of microseconds to wake up. This limit is for all "
        "cores, from the start of the kernel on.",
        "Documentation/admin-guide/kernel-parameters.txt: processor.max_cstate",
        roles=PHYSICAL,
        does="Limits how deeply all cores sleep, from the start of the kernel on.",
        word=lambda _purpose, tree: f"processor.max_cstate={_driven(tree, 'acpi_idle').value}",
    ),
    row(
        "frequency-driver",
        Files(f"{CPU}/intel_pstate/status", settable=False),
        fixed("off"),
        "The processor changes its frequency by itself, within what this driver allows. Without "
        "the driver it may stay at its base frequency.",
        f"{STATES}; how-low-can-you-go, Table 1; packet-processing-in-virtualized-environments, "
        "section 3",
        roles=PHYSICAL,
        does="Turns the driver off that lets the processor choose its frequency.",
        word=lambda _purpose, _tree: "intel_pstate=disable",
        absent="the driver intel_pstate is not in use",
    ),
    row(
        "amd-frequency-driver",
        Files(f"{CPU}/amd_pstate/status", settable=False),
        fixed("disable"),
        "The processor changes its frequency by itself, within what this driver allows. Without "
        "the driver another one scales it in fewer steps.",
        "Documentation/admin-guide/pm/amd-pstate.rst: amd_pstate",
        roles=PHYSICAL,
        does="Turns the driver off that lets the processor choose its frequency.",
        word=lambda _purpose, _tree: "amd_pstate=disable",
        absent="the driver amd_pstate is not in use",
    ),
    row(
        "idle-poll",
        on_the_line("idle", otherwise="default"),
        fixed("poll"),
        "Idle cores never sleep: no wake-up costs time, and every core is at full power, so that "
        "none has room for turbo.",
        "how-low-can-you-go, Table 1; packet-processing-in-virtualized-environments, Table 2",
        roles=BARE,
        does="Makes idle cores poll instead of sleeping.",
        word=lambda _purpose, _tree: "idle=poll",
    ),
)
