"""A knob's value is what the kernel does: settings that nothing listens to are no answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from scratch_machine import scratch_machine

from tailtap.host.facts.kernel_audit import enabled
from tailtap.host.knobs.tree import Purpose, Tree, Unreadable
from tailtap.host.tuning.apply import audit
from tailtap.records.printed import AuditRow

CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0"
STEADY = "flags : constant_tsc nonstop_tsc tsc_adjust"
DEBUG = "sys/kernel/debug/sched"
HUGE = "sys/kernel/mm/transparent_hugepage"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(scratch_machine(tmp_path))


def judged(tree: Tree, name: str, files: Mapping[str, str], role: str = "bare-metal") -> AuditRow:
    """What the audit says of a knob on a machine with these files."""
    for path, text in files.items():
        file = tree.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    [row] = audit(tree, Purpose.of(tree, role, "2-3"), [name]).rows
    return row


POLLING = {"sys/module/haltpoll/parameters/guest_halt_poll_ns": "200000"}
HALTPOLL = {
    f"{CPU}/cpuidle/current_driver": "haltpoll",
    f"{CPU}/cpuidle/current_governor_ro": "haltpoll",
}
LIMITS = {f"{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us": "1" for cpu in (2, 3)}
KVM_TSC = {f"{CLOCK}/current_clocksource": "tsc", f"{CLOCK}/available_clocksource": "tsc hpet"}
WATCHED = {"proc/sys/kernel/soft_watchdog": "1", "proc/sys/kernel/nmi_watchdog": "1"}


@pytest.mark.parametrize(
    ("files", "answer", "said"),
    [
        (POLLING | HALTPOLL, "met", "polls so many nanoseconds"),
        (POLLING, "not-applicable", "no cpuidle driver is in use"),
        (POLLING | {f"{CPU}/cpuidle/current_driver": "none"}, "not-applicable", "no cpuidle"),
        (
            POLLING | HALTPOLL | {f"{CPU}/cpuidle/current_governor_ro": "menu"},
            "not-applicable",
            "the governor haltpoll is not in use, but menu",
        ),
    ],
)
def test_a_guest_polls_only_by_its_driver(
    tree: Tree, files: Mapping[str, str], answer: str, said: str
) -> None:
    row = judged(tree, "guest-halt-polling", files, "vm-guest")
    assert row.answer == answer and said in row.why


@pytest.mark.parametrize(
    ("files", "answer", "wanted"),
    [
        (LIMITS, "not-applicable", None),
        (LIMITS | {f"{CPU}/cpuidle/current_driver": "intel_idle"}, "met", "1 or n/a"),
        (LIMITS | HALTPOLL, "not-met", "n/a"),  # which heeds nothing but the shortest
    ],
)
def test_a_limit_for_sleep_needs_somebody_who_heeds_it(
    tree: Tree, files: Mapping[str, str], answer: str, wanted: str | None
) -> None:
    row = judged(tree, "resume-latency", files)
    assert (row.answer, row.wanted) == (answer, wanted)


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({}, "checked"),
        ({"proc/cpuinfo": STEADY, "proc/sys/kernel/osrelease": "6.1.0"}, "trusted"),
        ({"proc/cpuinfo": STEADY, "proc/sys/kernel/osrelease": "5.10.0"}, "checked"),
        (
            {"proc/cpuinfo": STEADY, "proc/sys/kernel/osrelease": "6.1.0"}
            | {f"sys/devices/system/node/node{n}/cpulist": "" for n in range(4)},
            "checked",
        ),
        ({"proc/cpuinfo": "flags : tsc_reliable hypervisor"}, "trusted"),
        ({"proc/cmdline": "tsc=reliable"}, "trusted"),
        ({f"{CLOCK}/available_clocksource": "tsc"}, "trusted"),
    ],
)
def test_a_tsc_that_the_kernel_trusts_is_not_checked(
    tree: Tree, files: Mapping[str, str], value: str
) -> None:
    row = judged(tree, "tsc-reliable", {**KVM_TSC, **files})
    assert (row.value, row.answer) == (value, "met" if value == "trusted" else "not-met")


@pytest.mark.parametrize(
    ("name", "files", "answer", "value"),
    [
        ("soft-watchdog", WATCHED, "not-met", "1"),
        ("soft-watchdog", WATCHED | {"proc/sys/kernel/watchdog": "0"}, "met", "0"),
        ("nmi-watchdog", WATCHED | {"proc/sys/kernel/watchdog_thresh": "0"}, "met", "0"),
        ("huge-page-defrag", {f"{HUGE}/enabled": "always madvise [never]",
                              f"{HUGE}/defrag": "[always] never"}, "not-applicable", None),
        ("huge-page-defrag", {f"{HUGE}/enabled": "always madvise [never]",
                              f"{HUGE}/defrag": "[always] never",
                              f"{HUGE}/hugepages-64kB/enabled": "[always] inherit never"},
         "not-met", "always"),
        ("rcu-nocb-poll", {"proc/cmdline": "rcu_nocb_poll", "dev/kmsg": "6,0,0,-;Linux version 6"},
         "not-met", "0"),
        ("interrupt-threads", {"sys/kernel/realtime": "1"}, "met", "1"),
        ("mitigations", {f"{CPU}/vulnerabilities/meltdown": "Not affected"}, "met", "off"),
        ("mitigations", {f"{CPU}/vulnerabilities/meltdown": "Mitigation: PTI"},
         "not-applicable", "auto"),
        ("real-time-throttling", {"proc/sys/kernel/sched_rt_runtime_us": "950000",
                                  f"{DEBUG}/fair_server/cpu2/runtime": "50000000"},
         "not-applicable", None),
        ("preemption", {f"{DEBUG}/preempt": "none voluntary full (lazy)"},
         "not-applicable", "lazy"),
        ("preemption", {f"{DEBUG}/preempt": "none voluntary (full) lazy"}, "met", "full"),
        ("preemption", {"dev/kmsg": "6,0,0,-;Dynamic Preempt: lazy"}, "not-applicable", "lazy"),
        ("ipi-broadcast", {"dev/kmsg": "6,0,0,-;IPI shorthand broadcast: enabled",
                           "proc/cmdline": "no_ipi_broadcast=1"}, "not-applicable", "enabled"),
        ("ipi-broadcast", {"proc/cmdline": "no_ipi_broadcast=1"}, "met", "disabled"),
        ("ipi-broadcast", {"proc/cpuinfo": "Features : fp asimd"}, "not-applicable", None),
        ("kernel-audit", {"proc/cmdline": "audit=0"}, "met", "0"),
        ("kernel-audit", {"proc/cmdline": "audit=1"}, "unknown", None),
    ],
)  # fmt: skip
def test_the_value_is_what_the_kernel_does(
    tree: Tree, name: str, files: Mapping[str, str], answer: str, value: str | None
) -> None:
    row = judged(tree, name, files)
    assert (row.answer, row.value) == (answer, value)


def test_polls_of_sockets_and_interrupts_want_different_things(tree: Tree) -> None:
    """0 serves interrupts and undoes preferred busy polling: neither is recommended."""
    for name, file in (
        ("deferred-interrupts", "napi_defer_hard_irqs"),
        ("flush-timeout", "gro_flush_timeout"),
    ):
        for value in ("0", "20000"):
            files = {f"sys/class/net/{card}/{file}": value for card in ("eth0", "eth1")}
            row = judged(tree, name, files)
            assert not row.recommended
            assert row.answer == ("met" if value == "0" else "not-applicable")
            assert "olling" in row.why or "polls" in row.why


def test_the_kernel_itself_says_whether_it_reports_system_calls() -> None:
    """Asked as root it answers; asked by others it says that only root may."""
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
        try:
            enabled()
        except Unreadable as refusal:
            os._exit(0 if "only root" in str(refusal) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, os.strerror(errno.EPERM)
    if os.geteuid() != 0:
        pytest.skip("asking the kernel for its audit status needs CAP_AUDIT_CONTROL")
    assert enabled() in (0, 1, 2)
