"""The exported files, read back by the rules of their programs, hold what the table says."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from boot_trees import boot, with_grub, write
from scratch_machine import scratch_machine, state

from tailtap.host.knobs import KNOBS, named, select
from tailtap.host.knobs.knob import Files
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import audit
from tailtap.host.tuning.bootline import bootline
from tailtap.host.tuning.exports import FORMATS, Content, content, sysctl_key

BUILTIN = {
    "ansible.builtin.shell",
    "ansible.builtin.stat",
    "ansible.builtin.copy",
    "ansible.builtin.command",
}
KEYWORDS = {"name", "register", "changed_when", "when"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = with_grub(scratch_machine(tmp_path))
    boot(root, "quiet")
    write(root, "/proc/sys/vm/compaction_proactiveness", "20\n")
    write(root, "/sys/devices/virtual/workqueue/cpumask", "f\n")
    write(root, "/sys/devices/virtual/workqueue/writeback/cpumask", "0000000f\n")
    for cpu in range(4):
        folder = f"/sys/devices/system/cpu/cpu{cpu}"
        write(root, f"{folder}/power/pm_qos_resume_latency_us", "0\n")
    return Tree(root)


@pytest.fixture
def purpose(tree: Tree) -> Purpose:
    return Purpose.of(tree, "bare-metal", "2-3", interfaces=["eth1"])


@pytest.fixture
def found(tree: Tree, purpose: Purpose) -> Content:
    made = content(tree, purpose)
    assert len(made.settings) > 8
    assert len(made.words) > 6
    return made


def exported(found: Content, name: str) -> tuple[str, dict[str, str]]:
    made = FORMATS[name](found)
    return made.text, dict(made.left)


def test_it_is_what_apply_and_bootline_would_set(
    tree: Tree, purpose: Purpose, found: Content
) -> None:
    for setting in found.settings:
        knob = setting.knob
        assert setting.value == knob.wish(purpose, tree).value
        assert isinstance(knob.where, Files)
        files = {path for pattern in setting.paths for path in tree.glob(pattern)}
        assert files == set(knob.read(tree, purpose))
        assert knob.recommended and not knob.disruptive
    assert found.line == bootline(tree, purpose).line
    done = {one.knob.name for one in found.settings} | {one.knob for one in found.words}
    named_left = dict(found.left)
    for knob in KNOBS:
        if purpose.role in knob.roles and knob.recommended and knob.settable != "no":
            assert (knob.name in done) != (knob.name in named_left), knob.name


def tuned(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(
        delimiters=("=",), comment_prefixes=("#",), interpolation=None, strict=True
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def test_a_profile_of_tuned(found: Content) -> None:
    text, left = exported(found, "tuned")
    profile = tuned(text)
    assert profile.sections() == ["main", "sysctl", "sysfs", "bootloader"]
    assert profile["bootloader"]["cmdline_tailtap"] == found.line
    for setting in found.settings:
        if setting.knob.name in left:
            assert all(path.startswith("/proc/irq/") for path in setting.paths)
            continue
        for path in setting.paths:
            section = "sysctl" if path.startswith("/proc/sys/") else "sysfs"
            key = sysctl_key(path) if section == "sysctl" else path
            assert profile[section][key] == setting.value
            assert section == "sysctl" or path.startswith("/sys/")


def test_a_file_of_sysctls(found: Content) -> None:
    text, left = exported(found, "sysctl")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[^\s=]+ = \S+", line) for line in lines)
    rows = {key: value for key, _, value in (line.split(" ") for line in lines)}
    wanted = {
        sysctl_key(path): setting.value
        for setting in found.settings
        for path in setting.paths
        if path.startswith("/proc/sys/")
    }
    assert rows == wanted
    assert rows["vm.stat_interval"] == "3600"
    others = {one.knob.name for one in found.settings if not one.is_sysctl}
    assert others <= left.keys()
    assert {word.knob for word in found.words} <= left.keys() | {
        one.knob.name for one in found.settings if one.is_sysctl
    }


def test_names_of_sysctls() -> None:
    assert sysctl_key("/proc/sys/vm/stat_interval") == "vm.stat_interval"
    path = "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"
    assert sysctl_key(path) == "net.ipv4.conf.eth0/100.rp_filter"


def tasks_of(found: Content) -> list[dict[str, Any]]:
    tasks = yaml.safe_load(exported(found, "ansible")[0])
    assert isinstance(tasks, list)
    for task in tasks:
        [module] = task.keys() - KEYWORDS
        assert module in BUILTIN
    return tasks


def run(task: dict[str, Any], tree: Tree) -> str:
    """Do what a task says to the files of the scratch machine."""
    script = re.sub(r"(?<=[ ])/(?=proc/|sys/)", f"{tree.root}/", task["ansible.builtin.shell"])
    return subprocess.check_output(["sh", "-c", script], text=True)


def test_a_task_list_sets_what_the_audit_wants(
    tree: Tree, purpose: Purpose, found: Content
) -> None:
    tasks = tasks_of(found)
    shells = [task for task in tasks if "ansible.builtin.shell" in task]
    names = [one.knob.name for one in found.settings]
    assert [task["name"].partition(":")[0] for task in shells] == names
    assert [task["register"] for task in shells] == [
        f"tailtap_{name.replace('-', '_')}" for name in names
    ]
    before = {row.name: row.differs for row in audit(tree, purpose, names).rows}
    said = {task["name"].partition(":")[0]: run(task, tree) for task in shells}
    assert {name: bool(text) for name, text in said.items()} == before
    assert {row.answer for row in audit(tree, purpose, names).rows} == {"met"}
    after = state(tree.root)
    assert [run(task, tree) for task in shells] == [""] * len(shells)
    assert state(tree.root) == after


def test_a_task_list_gives_grub_the_line(tree: Tree, found: Content) -> None:
    stat, copy, update = tasks_of(found)[-3:]
    assert stat["ansible.builtin.stat"] == {"path": "/etc/default/grub"}
    assert stat["register"] in copy["when"]
    assert copy["register"] in update["when"]
    assert update["ansible.builtin.command"] == "update-grub"
    script = f"{copy['ansible.builtin.copy']['content']}echo $GRUB_CMDLINE_LINUX_DEFAULT"
    assert subprocess.check_output(["sh", "-c", script], text=True) == f"{found.line}\n"


@pytest.mark.parametrize("name", FORMATS)
def test_each_value_has_its_reason_and_what_is_left_is_said(found: Content, name: str) -> None:
    text, left = exported(found, name)
    lines = text.splitlines()
    names = [setting.knob.name for setting in found.settings] + [row.knob for row in found.words]
    for knob in select(names):
        if knob.name not in left:
            assert any(
                line.startswith(f"# {knob.name}: {knob.why}") and knob.source in line
                for line in lines
            )
    rest = lines[lines.index("# Not set here:") + 1 :]
    assert rest == [f"# {one}: {why}" for one, why in left.items()]


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_to_set(tree: Tree, purpose: Purpose, name: str) -> None:
    (tree.root / "proc/sys/vm/stat_interval").unlink()
    text, left = exported(content(tree, purpose, ["stat-interval"]), name)
    assert left == {"stat-interval": "there is no /proc/sys/vm/stat_interval"}
    if name == "ansible":
        assert yaml.safe_load(text) == []
    if name == "tuned":
        assert tuned(text).sections() == ["main"]


def test_what_will_do_is_left(tree: Tree, purpose: Purpose) -> None:
    write(tree.root, "/proc/sys/vm/stat_interval", "4000\n")
    made = content(tree, purpose, ["stat-interval"])
    assert made.settings == []
    assert dict(made.left) == {"stat-interval": "4000 will do, and is there already"}


def test_disruptive_knobs_are_left(tree: Tree, purpose: Purpose) -> None:
    write(tree.root, "/sys/devices/system/cpu/smt/control", "on\n")
    assert named("hyperthreads") is not None
    assert "apply --disruptive" in dict(content(tree, purpose).left)["hyperthreads"]
