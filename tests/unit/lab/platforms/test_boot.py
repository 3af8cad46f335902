"""Boot parameters compared with what was booted, and the words of a guest's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from boot_trees import write

from tailtap.base.errors import MachineError
from tailtap.host.knobs.line import BUILT
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import tuning
from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.boot import (
    Boot,
    check_boot,
    filled_in,
    lacking,
    parameters,
    require,
    require_of_host,
)
from tailtap.lab.platforms.vm import VmOptions
from tailtap.lab.platforms.vm.guest_line import (
    Line,
    judged,
    line_of,
    require_effect,
    write_tree,
)
from tailtap.lab.platforms.vm.kernels import Kernel
from tailtap.records.record import as_json

TUNED = "nohz_full={cpus} rcu_nocbs={cpus} isolcpus={cpus}"


def machine(root: Path, line: str, *, nohz: str | None = " (null)", isolated: str = "") -> Path:
    files = {"proc/cmdline": line, "sys/devices/system/cpu/isolated": isolated}
    if nohz is not None:
        files["sys/devices/system/cpu/nohz_full"] = nohz
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


def words(wanted: str, line: str) -> list[str]:
    return [str(one) for one in lacking(wanted, line)]


def test_a_command_line_has_parameters() -> None:
    line = 'BOOT_IMAGE=/vmlinuz root=UUID=a=b quiet no-hz "dyndbg=file x +p" a="b c" -- init=/x'
    assert [tuple(one) for one in parameters(line)] == [
        ("BOOT_IMAGE", "/vmlinuz"),
        ("root", "UUID=a=b"),
        ("quiet", None),
        ("no_hz", None),
        ("dyndbg", "file x +p"),
        ("a", "b c"),
    ]
    assert str(parameters('a="b c"')[0]) == 'a="b c"'


@pytest.mark.parametrize(
    ("wanted", "line", "missing"),
    [
        ("", "", []),
        ("quiet audit=0", "ro audit=0 quiet", []),
        ("audit=0", "audit=1", ["audit=0"]),
        ("audit=0", "audit", ["audit=0"]),
        ("audit", "audit=0", ["audit"]),
        ("nosmt", "nosmt=force", ["nosmt"]),
        ("skew-tick=1", "skew_tick=1", []),
        ("idle=poll mce=ignore_ce", "idle=poll", ["mce=ignore_ce"]),
        # The last one counts, and all that are asked for.
        ("idle=poll", "idle=halt idle=poll", []),
        ("idle=poll", "idle=poll idle=halt", ["idle=poll"]),
        ("hugepagesz=1G hugepages=4", "hugepagesz=1G hugepages=4", []),
        ("console=a console=b", "console=b", ["console=a", "console=b"]),
        # Lists of CPUs are sets.
        ("irqaffinity=0-2", "irqaffinity=2,0,1", []),
        ("irqaffinity=0", "irqaffinity=0,1", ["irqaffinity=0"]),
        ("irqaffinity=0,1", "irqaffinity=0", ["irqaffinity=0,1"]),
        ("isolcpus=1", "isolcpus=0-15:1/2", ["isolcpus=1"]),
        ("isolcpus=0-15:1/2", "isolcpus=0-15:1/2", []),
        # Others may be kept free as well.
        ("isolcpus=1,3 nohz_full=1", "isolcpus=1-3 nohz_full=1-7", []),
        ("isolcpus=1,4", "isolcpus=1-3", ["isolcpus=1,4"]),
        ("isolcpus=1", "isolcpus=domain,1,2", []),
        ("isolcpus=managed_irq,domain,1", "isolcpus=domain,managed_irq,1", []),
        ("isolcpus=managed_irq,domain,1", "isolcpus=1", ["isolcpus=managed_irq,domain,1"]),
    ],
)
def test_what_a_command_line_lacks(wanted: str, line: str, missing: list[str]) -> None:
    assert words(wanted, line) == missing


def test_the_duts_cpus_are_those_of_the_kernel_that_boots() -> None:
    assert filled_in(TUNED, [3, 2]) == "nohz_full=2,3 rcu_nocbs=2,3 isolcpus=2,3"
    assert check_boot(TUNED) == TUNED
    with pytest.raises(ValueError, match=r"^\{cpu\} stands for nothing: known are \{cpus\}"):
        check_boot("isolcpus={cpu}")
    with pytest.raises(ValueError, match="is no template"):
        check_boot("isolcpus={cpus")
    with pytest.raises(ValueError, match="a quotation mark is missing"):
        check_boot('a="b')


def refusal(wanted: str, without: frozenset[str], root: Path) -> str:
    with pytest.raises(MachineError) as caught:
        require_of_host(wanted, without, [1, 2], root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_host_was_booted_with_what_is_asked_for_or_the_run_fails(tmp_path: Path) -> None:
    root = machine(tmp_path, "ro isolcpus=1")
    assert refusal(TUNED, frozenset(), root) == (
        "dut.boot: this machine was not booted with nohz_full=1,2 rcu_nocbs=1,2 isolcpus=1,2: put "
        "that on its kernel's command line (in /etc/default/grub, say), reboot, and resume the "
        "experiment with --resume"
    )
    line = "ro nohz_full=1-3 rcu_nocbs=1-3 isolcpus=1-3"
    machine(root, line, nohz="1-3", isolated="1-3")
    log = "6,1,1,-;Linux version 6.12\n6,2,1,-;rcu: \\x09Offload RCU callbacks from CPUs: 1-3.\n"
    write(root, "/dev/kmsg", log)
    write(root, "/proc/irq/default_smp_affinity", "0000000f\n")
    assert require_of_host(TUNED, frozenset(), [1, 2], root) == {
        "command_line": line,
        "nohz_full": (1, 2, 3),
        "isolated": (1, 2, 3),
        "rcu_nocbs": (1, 2, 3),
        "irqaffinity": (0, 1, 2, 3),
        "unknown": (),
    }


def test_a_kernel_that_does_not_do_what_it_was_booted_with(tmp_path: Path) -> None:
    line = filled_in(TUNED, [1, 2])
    for nohz in (None, " (null)"):  # without and with CONFIG_NO_HZ_FULL
        root = machine(tmp_path / str(nohz), line, nohz=nohz, isolated="1-2")
        assert refusal(TUNED, frozenset(), root) == (
            "dut.boot: this machine was booted with nohz_full=1,2, but its "
            "/sys/devices/system/cpu/nohz_full says no CPU: take a kernel that can do it, or other "
            "CPUs"
        )
    root = machine(tmp_path, line, nohz="1-2", isolated="2")
    assert "cpu/isolated says 2: take" in refusal(TUNED, frozenset(), root)
    root = machine(tmp_path, line, nohz="1-2", isolated="1-2")
    version = "6,1,1,-;Linux version 6.12\n"
    write(root, "/dev/kmsg", f"{version}6,2,1,-;rcu: \\x09Offload RCU callbacks from CPUs: 2.\n")
    assert "it offloads the RCU callbacks of 2: take" in refusal(TUNED, frozenset(), root)
    unknown = 'Unknown kernel command line parameters "skew-tic=1 splash", will be passed'
    write(root, "/dev/kmsg", f"{version}5,2,1,-;{unknown} to user space.\n")
    machine(root, "skew-tic=1 splash")
    assert refusal("skew_tic=1", frozenset(), root) == (
        "dut.boot: this machine was booted with skew_tic=1, but its kernel does not know that "
        "parameter: take a kernel that can do it, or spell it as kernels do"
    )
    assert require_of_host("splash", frozenset(), [1, 2], root)["unknown"] == ("skew_tic",)
    # Interrupts are kept off these CPUs, the scheduler is not: nothing to read back.
    line = "isolcpus=managed_irq,1"
    require(line, Boot(line, (), ()), "it", "no")


def test_what_other_runs_ask_for_is_not_there_without_being_asked_for(tmp_path: Path) -> None:
    root = machine(tmp_path, "ro isolcpus=1,2 audit=0", isolated="1-2")
    assert refusal("", frozenset({"isolcpus", "idle"}), root) == (
        "dut.boot: this machine was booted with isolcpus=1,2, which other runs of the experiment "
        "ask for and this one does not: take that off its kernel's command line, reboot, and "
        "resume the experiment with --resume"
    )
    assert require_of_host("isolcpus={cpus}", frozenset({"idle"}), [1, 2], root)


RELEASE = "6.12.1"
GUEST = Purpose("vm-guest", (1, 2), (0,))


def kernel(folder: Path, *options: str, told: bool = True) -> Kernel:
    """One that was built with these options of those that words need."""
    lines = [
        f"CONFIG_{one}=y" if one in options else f"# CONFIG_{one} is not set"
        for one in {*BUILT.values(), *options}
    ]
    if told:
        write_tree(folder, {f"boot/config-{RELEASE}": "\n".join([*lines, ""])})
    modules = folder / "lib/modules" / RELEASE
    return Kernel("vanilla", folder / "boot" / f"vmlinuz-{RELEASE}", RELEASE, modules)


def line(made: Kernel, asked: str = "", *, full: bool = True) -> Line:
    options = VmOptions.model_validate({"boot": asked})
    return line_of(DutSpec((4, 5), options, tuned_boot=full), made)


def names(made: Line) -> set[str]:
    return {one.name for one in parameters(made.asked)}


def test_a_kernel_that_has_everything_gets_every_word(tmp_path: Path) -> None:
    made = line(kernel(tmp_path, *BUILT.values()))
    assert "isolcpus=domain,managed_irq,1-2" in made.text.split()
    assert {"rcu_nocbs", "rcu_nocb_poll", "skew_tick", "irqaffinity", "audit", "nosoftlockup",
            "nmi_watchdog", "numa_balancing", "transparent_hugepage"} <= names(made)  # fmt: skip
    assert made.asked.split() == list(made.recommended.values())
    assert not made.recommended.keys() & made.left.keys()
    # Nobody knows what the kernel will read the time from, nor that it is a real-time one.
    assert "current_clocksource tells" in made.left["tsc-reliable"]
    assert made.left["rcu-priority"] == "this is no real-time kernel"


@pytest.mark.parametrize("option", sorted(set(BUILT.values())))
def test_what_a_kernel_was_not_built_for_is_left_out(tmp_path: Path, option: str) -> None:
    every = line(kernel(tmp_path / "one", *BUILT.values()))
    made = line(kernel(tmp_path / "other", *(set(BUILT.values()) - {option})))
    lost = {knob for knob, word in every.recommended.items()
            if BUILT.get(word.partition("=")[0]) == option}  # fmt: skip
    assert every.recommended.keys() - made.recommended.keys() == lost
    assert {made.left[knob] for knob in lost} <= {f"the kernel was built without {option}"}


def test_a_real_time_kernel_gets_its_word(tmp_path: Path) -> None:
    made = line(kernel(tmp_path, *BUILT.values(), "PREEMPT_RT"))
    assert made.recommended["rcu-priority"] == "rcutree.kthread_prio=11"


def test_a_kernel_that_does_not_tell_gets_every_word(tmp_path: Path) -> None:
    made = line(kernel(tmp_path, told=False))
    assert made.recommended == line(kernel(tmp_path, *BUILT.values())).recommended


def test_what_the_experiment_says_is_said_once(tmp_path: Path) -> None:
    made = line(kernel(tmp_path, *BUILT.values()), "isolcpus={cpus} skew-tick=0")
    assert made.asked.endswith(" isolcpus=1,2 skew-tick=0")
    assert [word for word in made.asked.split() if word.startswith("isolcpus")] == ["isolcpus=1,2"]
    assert made.left["isolated-cpus"] == "dut.boot says isolcpus=1,2"
    assert made.left["skew-tick"] == "dut.boot says skew_tick=0"
    plain = line(kernel(tmp_path, *BUILT.values()), "isolcpus={cpus}", full=False)
    assert (plain.asked, plain.recommended, plain.left) == ("isolcpus=1,2", {}, {})


def booted(folder: Path, made: Kernel, said: str) -> Tree:
    """A kernel that does nothing of what its line says."""
    files = {"proc/cmdline": said, "proc/sys/kernel/osrelease": RELEASE,
             "sys/devices/system/cpu/isolated": "", "proc/irq/default_smp_affinity": "7",
             "sys/devices/system/cpu/online": "0-2"}  # fmt: skip
    config = made.config
    assert config is not None
    write_tree(folder, {**files, f"boot/config-{RELEASE}": config.read_text()})
    return Tree(folder)


def test_a_word_without_effect_is_an_error_that_names_it(tmp_path: Path) -> None:
    made = kernel(tmp_path / "kernel", *BUILT.values())
    words = line(made)
    tree = booted(tmp_path / "guest", made, words.text)
    with pytest.raises(
        MachineError, match=r"booted with isolcpus=domain,managed_irq,1-2, but"
    ) as e:
        require_effect(judged(tree, GUEST), words)
    assert "\n" not in str(e.value)


def test_what_was_left_out_does_not_apply_in_the_record(tmp_path: Path) -> None:
    made = kernel(tmp_path / "kernel", *(set(BUILT.values()) - {"TICK_ONESHOT"}))
    words = line(made)
    found = judged(booted(tmp_path / "guest", made, words.text), GUEST)
    record = as_json(tuning(found, found.rows, left=words.left))
    why = "the kernel was built without TICK_ONESHOT"
    assert record["left"]["skew-tick"] == why
    row = record["audit"]["skew-tick"]
    assert (row["answer"], row["value"], row["wanted"]) == ("not-applicable", None, None)
    assert row["why"] == why
    assert record["audit"]["kernel-audit"]["answer"] == "met"
