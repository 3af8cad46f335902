"""The words of a guest's kernel, for kernels that were built with and without what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tailtap.host.knobs.line import BUILT
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.audit import tuning
from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.boot import parameters
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
