"""What is wrong with a kernel's command line is found, and what is right is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from boot_trees import write
from scratch_machine import judged, scratch_machine

from tailtap.host.knobs.line import FINE, cores
from tailtap.host.knobs.tree import Purpose, Tree

BOOT = "6,0,0,-;Linux version 6.1.0 (builder) #1 SMP\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(scratch_machine(tmp_path))


def booted(tree: Tree, line: str, log: str | None = None, config: str | None = None) -> None:
    """Let the machine have been booted so."""
    (tree.root / "proc/cmdline").write_text(f"BOOT_IMAGE=/vmlinuz root=/dev/vda ro {line}\n")
    if log is not None:
        (tree.root / "dev").mkdir(exist_ok=True)
        (tree.root / "dev/kmsg").write_text(
            BOOT + "".join(f"5,1,1,-;{text}\n" for text in log.splitlines())
        )
    if config is not None:
        (tree.root / "proc/config.gz").write_bytes(gzip.compress(config.encode()))


def said(tree: Tree, name: str, cpus: str = "2-3") -> str | None:
    """What the audit finds; None when nothing is wrong."""
    row = judged(name, tree, Purpose.of(tree, "bare-metal", cpus))
    assert row.answer in ("met", "not-met"), row
    assert (row.answer == "met") == (row.value == FINE)
    return None if row.answer == "met" else row.value


GOOD = (
    "isolcpus=domain,managed_irq,2-3 nohz_full=2-3 rcu_nocbs=2-3 rcu_nocb_poll irqaffinity=0-1 "
    "skew_tick=1 tsc=reliable nosoftlockup nmi_watchdog=0 audit=0 mce=ignore_ce idle=poll quiet "
    "reboot=k panic=1 nomodule console=ttyS0 random.trust_cpu=1 rcutree.kthread_prio=11"
)


def test_a_good_line(tree: Tree) -> None:
    for log in (None, ""):
        booted(tree, GOOD, log)
        for name in ("line-words", "line-cores", "line-contradictions"):
            assert said(tree, name) is None, name


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("roc_nocb_poll", "rcu_nocb_poll"),
        ("isolated_cpus=2-3", "isolcpus"),
        ("nohzfull=2-3", "nohz_full"),
        ("skew_ticks=1", "skew_tick"),
        ("nosoftlookup", "nosoftlockup"),
        ("rcutree.kthread_pri=11", "rcutree.kthread_prio"),
    ],
)
def test_misspelt_words_are_found_without_the_kernels_log(
    tree: Tree, word: str, meant: str
) -> None:
    booted(tree, word)
    assert said(tree, "line-words") == f"{word.partition('=')[0]} is perhaps {meant} misspelt"


def test_the_kernels_log_says_which_words_it_does_not_know(tree: Tree) -> None:
    told = 'Unknown kernel command line parameters "splash roc_nocb_poll=1 foo", will be passed'
    booted(tree, "splash roc_nocb_poll=1 foo isolated_cpu=1", told)
    assert said(tree, "line-words") == (
        "the kernel does not know roc_nocb_poll, perhaps rcu_nocb_poll; "
        "the kernel does not know foo"
    )
    # A log that says nothing of it knows every word; one that has lost its beginning does not.
    booted(tree, "isolated_cpus=1", "nothing")
    assert said(tree, "line-words") is None
    (tree.root / "dev/kmsg").write_text("6,99,9,-;later\n")
    assert said(tree, "line-words") == "isolated_cpus is perhaps isolcpus misspelt"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("isolcpus=2,2-3", "isolcpus names core 2 twice"),
        ("nohz_full=2-9", "nohz_full names core 4-9, which is not there"),
        ("irqaffinity=one", "irqaffinity=one is no list of cores"),
        ("rcu_nocbs=3-2", "rcu_nocbs=3-2 is no list of cores"),
        ("isolcpus=domain,managed_irq,2-5", "isolcpus names core 4-5, which is not there"),
        ("isolcpus=2 isolcpus=3", "isolcpus is there 2 times"),
        ("rcu_nocbs=all irqaffinity=0-N nohz_full=0-3:1/2", None),
    ],
)
def test_lists_of_cores(tree: Tree, line: str, wrong: str | None) -> None:
    booted(tree, line)
    assert said(tree, "line-cores") == wrong


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-2,8", [0, 1, 2, 8]),
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("N", [7]),
        ("6-N", [6, 7]),
        ("0-7:2/4", [0, 1, 4, 5]),
        ("1-3:1/1", [1, 2, 3]),
        ("0-7:1/0", None),
        ("-1", None),
        ("", None),
        ("domain", None),
    ],
)
def test_lists_as_the_kernel_takes_them(text: str, expected: list[int] | None) -> None:
    assert cores(text, 7) == expected


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("isolcpus=2-3 irqaffinity=0-2", "irqaffinity puts interrupts on core 2 of isolcpus"),
        ("nohz_full=2-3 isolcpus=3", "nohz_full has core 2, which isolcpus does not"),
        ("rcu_nocb_poll", "rcu_nocb_poll polls for nobody"),
        ("isolcpus=0-3", "isolcpus leaves no core for everything else"),
        ("isolcpus=1-3", "isolcpus keeps housekeeping core 1 free"),
        ("nosmt mitigations=auto,nosmt", "nosmt is said twice"),
    ],
)
def test_contradictions(tree: Tree, line: str, wrong: str) -> None:
    booted(tree, line)
    assert wrong in (said(tree, "line-contradictions") or "")


PARTITIONS = {
    "since Linux 6.7": {"cpuset.cpus.isolated": "2-3\n"},
    "before": {
        "a/cpuset.cpus.partition": "isolated\n",
        "a/cpuset.cpus.effective": "2\n",
        "b.slice/c/cpuset.cpus.partition": "isolated\n",
        "b.slice/c/cpuset.cpus.effective": "3\n",
        "d/cpuset.cpus.partition": "isolated invalid (Cpu list in cpuset.cpus not exclusive)\n",
        "d/cpuset.cpus.effective": "0-1\n",
    },
}


@pytest.mark.parametrize("files", PARTITIONS.values(), ids=PARTITIONS)
def test_cores_that_control_groups_isolate_need_no_isolcpus(
    tree: Tree, files: dict[str, str]
) -> None:
    booted(tree, "nohz_full=2-3")
    for name, text in files.items():
        path = tree.root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert said(tree, "line-contradictions") is None
    for cpus, answer in (("2-3", "met"), ("1-3", "not-met")):
        found = judged("isolated-cpus", tree, Purpose.of(tree, "bare-metal", cpus))
        assert found.answer == answer


def test_parameters_that_the_kernel_was_not_built_for(tree: Tree) -> None:
    booted(tree, "nohz_full=2-3 rcu_nocbs=2-3", config="CONFIG_RCU_NOCB_CPU=y\n")
    assert said(tree, "line-refused") == (
        "nohz_full does nothing: the kernel was built without NO_HZ_FULL"
    )


def test_parameters_that_the_kernel_refused(tree: Tree) -> None:
    words = "Housekeeping: nohz_full= must match isolcpus="
    booted(tree, "isolcpus=nohz,1 nohz_full=2-3", f"something\n{words}\n")
    assert said(tree, "line-refused") == f"the kernel says: {words}"
    booted(tree, "isolcpus=1", "Housekeeping is fine\n")
    assert said(tree, "line-refused") is None


def test_nobody_knows_what_was_refused_without_log_and_configuration(tree: Tree) -> None:
    booted(tree, "nohz_full=2-3")
    row = judged("line-refused", tree, Purpose.of(tree, cpus="2-3"))
    assert (row.answer, row.why) == (
        "unknown",
        "the kernel's log cannot be read: No such file or directory",
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [("2-3", "met"), ("1-3", "met"), ("3", "not-met"), ("(null)", "not-met"), ("", "not-met")],
)
def test_cores_without_ticks(tree: Tree, text: str, answer: str) -> None:
    purpose = Purpose.of(tree, cpus="2-3")
    assert judged("nohz-full", tree, purpose).why == "this kernel was built without NO_HZ_FULL"
    (tree.root / "sys/devices/system/cpu/nohz_full").write_text(f"{text}\n")
    row = judged("nohz-full", tree, purpose)
    assert row.differs == (answer == "not-met")
    assert row.answer == ("met" if answer == "met" else "not-applicable")


def test_cores_whose_callbacks_run_elsewhere(tree: Tree) -> None:
    purpose = Purpose.of(tree, cpus="2-3")

    def answer(line: str) -> str:
        write(tree.root, "/proc/cmdline", f"quiet {line}\n")
        return judged("rcu-nocbs", tree, purpose).answer

    assert answer("rcu_nocbs=2-3") == "unknown", "a container sees no threads of the kernel"
    write(tree.root, "/proc/2/comm", "kthreadd\n")
    assert answer("rcu_nocbs=2-3") == "not-met"
    # A kernel that can change it later has a thread for every core, also for the others.
    for number, name in enumerate(("rcuop/1", "rcuop/2", "rcuos/3", "rcuog/0", "rcu_preempt")):
        write(tree.root, f"/proc/{number + 10}/comm", f"{name}\n")
    assert answer("rcu_nocbs=2-3") == answer("nohz_full=2-3") == "met"
    assert answer("rcu_nocbs=1-2") == "not-met"
    # Its log says which.
    log = "6,1,1,-;Linux version 6.12\n6,2,1,-;rcu: \\x09Offload RCU callbacks from CPUs: {}.\n"
    write(tree.root, "/dev/kmsg", log.format("2-3"))
    assert answer("") == "met"
    write(tree.root, "/dev/kmsg", log.format("(none)"))
    assert answer("rcu_nocbs=2-3") == "not-met"
