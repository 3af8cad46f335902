"""The kernel's line: its words, what it says of the running one, and the file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from boot_trees import (
    ENTRY,
    ENTRY_TEXT,
    MACHINE,
    RELEASE,
    boot,
    grub_line,
    variable,
    with_grub,
    with_systemd_boot,
    write,
)
from children import dying
from scratch_machine import scratch_machine

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import DRAFT
from tailtap.host import loaders
from tailtap.host.changes import clean, journal
from tailtap.host.changes.journal import Owner, read_all
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.line import FINE, fields
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.loaders import DROP_IN, MARK, alike, loader_of
from tailtap.host.tuning.apply import audit, revert
from tailtap.host.tuning.bootline import bootline, install, remove
from tailtap.records.printed import BootlineRecord

BOOT_ROWS = [knob.name for knob in KNOBS if knob.word is not None]
LINE_ROWS = [knob.name for knob in KNOBS if knob.name.startswith("line-")]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = scratch_machine(tmp_path / "machine")
    boot(root, "root=/dev/vda ro quiet")
    clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    write(root, clock, "tsc\n")
    return Tree(root)


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


def asked(tree: Tree, cpus: str = "2-3", *also: str) -> BootlineRecord:
    return bootline(tree, Purpose.of(tree, "bare-metal", cpus), also=also)


def files(tree: Tree) -> dict[str, bytes]:
    """Every file outside /proc and /sys, and every folder."""
    return {
        str(path.relative_to(tree.root)): path.read_bytes() if path.is_file() else b""
        for path in tree.root.rglob("*")
        if path.relative_to(tree.root).parts[0] not in ("proc", "sys", "dev")
    }


def left_of(made: BootlineRecord) -> dict[str, str]:
    return {left.name: left.why for left in made.left}


def states(made: BootlineRecord) -> dict[str, str]:
    return {word.word: word.state for word in made.words}


def test_each_word_has_its_reason(tree: Tree) -> None:
    made = asked(tree)
    assert made.line.split()[0] == "isolcpus=domain,managed_irq,2-3"
    assert "rcu_nocbs=2-3" in made.line.split()
    assert "nohz_full=2-3" not in made.line
    assert "nohz_full=2-3" in asked(tree, "2-3", "nohz-full").line.split()
    content = msgspec.to_builtins(made)
    assert content["schema"] == "tailtap.bootline/1"
    assert content["line"] == " ".join(row["word"] for row in content["words"])
    assert all(row["why"] and row["source"] for row in content["words"])
    assert set(states(made).values()) == {"missing"}
    assert made.wrong == []


def test_a_name_chooses_words(tree: Tree) -> None:
    purpose = Purpose.of(tree, "bare-metal", "2-3")
    assert bootline(tree, purpose, ["skew-tick"]).line == "skew_tick=1"
    assert bootline(tree, purpose, ["nohz-full"]).line == "nohz_full=2-3"
    with pytest.raises(InputError, match="stat-interval is no word of the kernel's command line"):
        bootline(tree, purpose, ["stat-interval"])
    with pytest.raises(InputError, match="no knob or group"):
        bootline(tree, purpose, ["isolcpus"])


def test_what_the_line_has_already(tree: Tree) -> None:
    boot(tree.root, "quiet isolcpus=managed_irq,domain,2,3 rcu_nocbs=1 skew-tick=1")
    found = states(asked(tree))
    assert found["isolcpus=domain,managed_irq,2-3"] == found["skew_tick=1"] == "there"
    assert found["rcu_nocbs=2-3"] == "other"
    assert "rcu_nocbs is there 2 times" in asked(tree).wrong


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("isolcpus=domain,2-3", "isolcpus=domain,2,3", True),
        ("isolcpus=domain,2-3", "isolcpus=2-3", True),  # housekeeping_isolcpus_setup()
        ("isolcpus=domain,2-3", "isolcpus=managed_irq,2-3", False),
        ("rcutree.kthread-prio=1", "rcutree.kthread_prio=1", True),
        ("audit=0", "audit=1", False),
        ("rcu_nocb_poll", "rcu_nocb_poll=", False),
        ("nohz_full=0-31:1/2", "nohz_full=0-31:1/2", True),
        ("nohz_full=0-31:1/2", "nohz_full=0-31", False),
    ],
)
def test_words_are_compared_by_what_they_mean(one: str, other: str, *, same: bool) -> None:
    assert alike(one, other) is same


def test_words_that_would_do_nothing_are_left_out(tree: Tree) -> None:
    write(tree.root, "/proc/sys/kernel/osrelease", "6.12.1\n")
    write(
        tree.root,
        "/boot/config-6.12.1",
        "CONFIG_TICK_ONESHOT=y\n# CONFIG_RCU_NOCB_CPU is not set\n",
    )
    left = left_of(asked(tree))
    assert "RCU_NOCB_CPU" in left["rcu-nocbs"]
    assert "RCU_NOCB_CPU" in left["rcu-nocb-poll"]
    assert "rcu_nocb" not in asked(tree).line
    (tree.root / "sys/devices/system/cpu/nohz_full").unlink()
    assert "without NO_HZ_FULL" in left_of(asked(tree, "2-3", "nohz-full"))["nohz-full"]
    said = 'Unknown kernel command line parameters "skew_tick=1", will be passed to user space.'
    write(tree.root, "/dev/kmsg", f"6,1,1,-;Linux version 6.12\n5,2,2,-;{said}\n")
    assert left_of(asked(tree))["skew-tick"] == "the kernel said that it does not know skew_tick"


def judged(tree: Tree, cpus: str = "2-3") -> dict[str, str]:
    purpose = Purpose.of(tree, "bare-metal", cpus)
    rows = audit(tree, purpose, [*BOOT_ROWS, *LINE_ROWS]).rows
    return {row.name: row.answer for row in rows if row.answer != "not-applicable"}


def test_the_audit_is_met_by_the_printed_line(tree: Tree) -> None:
    before = judged(tree)
    made = asked(tree, "2-3", "nohz-full")
    words = {word.knob for word in made.words}
    # Of a recorded machine nobody knows what a daemon switched on.
    assert before["kernel-audit"] == "unknown"
    assert {before[name] for name in words - {"nohz-full", "kernel-audit"}} == {"not-met"}
    boot(tree.root, f"root=/dev/vda ro quiet {made.line}")
    patience = bootline(tree, Purpose.of(tree, "bare-metal", "2-3"), ["nohz-full-patience"]).left
    assert patience, "no such file in this tree"
    after = judged(tree)
    assert words | set(LINE_ROWS) <= after.keys()
    assert set(after.values()) == {"met"}
    assert set(states(asked(tree)).values()) == {"there"}


@pytest.mark.parametrize(
    ("typo", "knob"),
    [("isolcpus=", "isolated-cpus"), ("rcu_nocbs=", "rcu-nocbs"), ("skew_tick=", "skew-tick")],
)
def test_the_audit_finds_a_typo_in_it(tree: Tree, typo: str, knob: str) -> None:
    line = asked(tree).line
    assert typo in line
    boot(tree.root, f"root=/dev/vda ro quiet {line.replace(typo, f'{typo[:3]}x{typo[3:]}')}")
    found = judged(tree)
    assert found[knob] == found["line-words"] == "not-met"
    assert [word.state for word in asked(tree).words if word.knob == knob] == ["missing"]
    assert any("does not know" in clause for clause in asked(tree).wrong)


def test_grub_gets_a_file_of_ours_and_loses_it(tree: Tree, journals: Path) -> None:
    with_grub(tree.root)
    before = files(tree)
    made = asked(tree)
    would = install(tree, made, journals, dry_run=True)
    assert files(tree) == before
    step = install(tree, made, journals)
    assert step == would
    assert step.file == DROP_IN
    assert step.then == "call `update-grub`, then reboot"
    assert step.difference.startswith(f"--- /dev/null\n+++ {DROP_IN}\n")
    assert all(line.startswith(("+", "---", "@@")) for line in step.difference.splitlines())
    assert grub_line(tree.root) == ["quiet", *made.line.split()]
    text = tree.text(DROP_IN)
    assert text.startswith(MARK)
    assert all(f"# {word.word}: {word.does} {word.why}" in text for word in made.words)
    changed = {path for path, content in files(tree).items() if before.get(path) != content}
    assert changed == {DROP_IN.lstrip("/"), DROP_IN.lstrip("/").rpartition("/")[0]} - before.keys()
    assert install(tree, made, journals).difference == ""
    assert len(list(read_all(journals))) == 1
    done = remove(tree, journals)
    assert (done.removed, done.left) == ([DROP_IN], [])
    assert done.then == "call `update-grub`, then reboot"
    assert files(tree) == before
    assert list(read_all(journals)) == []
    assert remove(tree, journals).removed == []


def test_what_others_say_is_not_said_again(tree: Tree, journals: Path) -> None:
    settings = (
        'GRUB_CMDLINE_LINUX="audit=0"\nexport GRUB_CMDLINE_LINUX_DEFAULT="isolcpus=3"\n'
        "GRUB_CMDLINE_LINUX_DEFAULT='quiet skew_tick=1' # isolcpus=1\n"
    )
    with_grub(tree.root, settings)
    cloud = (
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT isolcpus=managed_irq,domain,3,2"\n'
    )
    write(tree.root, "/etc/default/grub.d/50-cloud.cfg", cloud)
    made = asked(tree)
    install(tree, made, journals)
    line = grub_line(tree.root)
    assert len({word.partition("=")[0] for word in line}) == len(line)
    assert all(any(alike(word, other) for other in line) for word in made.line.split())
    assert "skew_tick" not in tree.text(DROP_IN)
    only = bootline(tree, Purpose.of(tree, "bare-metal", "2-3"), ["skew-tick"])
    remove(tree, journals)
    assert install(tree, only, journals).then == "it has all these words already"
    assert not tree.exists(DROP_IN)


def test_another_value_in_a_file_of_others_is_refused(tree: Tree, journals: Path) -> None:
    with_grub(tree.root, 'GRUB_CMDLINE_LINUX="isolcpus=1"\n')
    before = files(tree)
    with pytest.raises(MachineError, match="isolcpus=1 is in a file that is not tailtap's") as said:
        install(tree, asked(tree), journals)
    assert "\n" not in str(said.value)
    assert files(tree) == before
    assert not journals.exists()


def test_a_second_install_replaces_the_words(tree: Tree, journals: Path) -> None:
    with_grub(tree.root)
    before = files(tree)
    install(tree, asked(tree, "3"), journals)
    boot(tree.root, " ".join(grub_line(tree.root)))
    step = install(tree, asked(tree, "2-3"), journals)
    assert "-# isolcpus=domain,managed_irq,3:" in step.difference
    assert grub_line(tree.root).count("isolcpus=domain,managed_irq,2-3") == 1
    assert not any(word == "isolcpus=domain,managed_irq,3" for word in grub_line(tree.root))
    assert remove(tree, journals, dry_run=True).removed == [DROP_IN]
    assert remove(tree, journals).removed == [DROP_IN]
    assert files(tree) == before


def test_grub_that_reads_no_drop_ins(tree: Tree, journals: Path) -> None:
    with_grub(tree.root)
    write(tree.root, "/usr/sbin/grub-mkconfig", "#!/bin/sh\n. /etc/default/grub\n")
    with pytest.raises(MachineError, match=r"reads no /etc/default/grub.d/99-tailtap.cfg: add"):
        install(tree, asked(tree), journals)


@pytest.mark.parametrize("place", ["/boot", "/efi", "/boot/efi"])
def test_systemd_boot_gets_a_copy_of_the_booted_entry(
    tree: Tree, journals: Path, place: str
) -> None:
    with_systemd_boot(tree.root, place)
    write(tree.root, f"{place}/loader/entries/another.conf", ENTRY_TEXT)
    before = files(tree)
    made = asked(tree)
    step = install(tree, made, journals)
    copied, old = fields(tree.text(step.file)), fields(ENTRY_TEXT)
    assert step.file == f"{place}/loader/entries/_-tailtap.conf"
    assert copied == dict(old) | {
        "title": ["Debian GNU/Linux (tailtap)"],
        "sort-key": ["zz-tailtap"],
        "options": [*old["options"], made.line],
    }
    assert f"--- {place}/loader/entries/{ENTRY}" in step.difference
    assert f"+options {made.line}" in step.difference
    assert "bootctl set-oneshot _-tailtap.conf" in step.then
    assert {path: text for path, text in files(tree).items() if path in before} == before
    # After it was booted, the copy is of the same entry, not of itself.
    variable(tree.root, "LoaderEntrySelected", "_-tailtap.conf")
    assert install(tree, asked(tree), journals).difference == ""
    assert revert(journals).undone == (step.file,)
    assert files(tree) == before


def test_which_entry_is_copied(tree: Tree, journals: Path) -> None:
    with_systemd_boot(tree.root)
    folder = tree.root / "boot/loader/entries"
    variable(tree.root, "LoaderEntrySelected", "")
    made = asked(tree)

    def copied(**options: str) -> str:
        step = install(tree, made, journals, dry_run=True, **options)
        return step.difference.splitlines()[0].rpartition("/")[2]

    assert copied() == ENTRY
    write(folder, "old.conf", ENTRY_TEXT.replace("6.12.48", "6.1.2"))
    assert copied() == ENTRY
    assert copied(entry="old.conf") == "old.conf"
    write(folder, "same.conf", ENTRY_TEXT)
    with pytest.raises(InputError, match=r"say --entry 5c1f.* or --entry old.conf or --entry same"):
        copied()
    with pytest.raises(InputError, match=r"^--entry: there is no 'sme.conf': did you mean 'same.c"):
        copied(entry="sme.conf")
    (folder / "same.conf").rename(folder / "same+3-0.conf")
    variable(tree.root, "LoaderEntrySelected", "same.conf")
    assert copied() == "same+3-0.conf"
    with_grub(tree.root)
    with pytest.raises(InputError, match="GRUB has no entries to copy"):
        copied(loader="grub", entry="old.conf")


def test_which_boot_loader(tree: Tree) -> None:
    with pytest.raises(MachineError, match="neither GRUB nor systemd-boot that tailtap knows"):
        loader_of(tree)
    with_grub(tree.root)
    assert loader_of(tree).name == "grub"
    with_systemd_boot(tree.root)
    assert loader_of(tree).name == "systemd-boot"
    variable(tree.root, "LoaderInfo", "GRUB 2.12")
    assert loader_of(tree).name == "grub"
    variable(tree.root, "LoaderInfo", "")
    with pytest.raises(InputError, match="say --loader grub or --loader systemd-boot"):
        loader_of(tree)
    assert loader_of(tree, "systemd-boot").name == "systemd-boot"
    with pytest.raises(InputError, match=r"^--loader: there is no 'grup': did you mean 'grub'"):
        loader_of(tree, "grup")


@pytest.mark.parametrize("how", ["file", "link"])
def test_a_file_of_somebody_else_with_our_name_is_left(
    tree: Tree, journals: Path, how: str
) -> None:
    with_grub(tree.root)
    write(tree.root, DROP_IN, "GRUB_TIMEOUT=1\n")
    if how == "link":
        write(tree.root, "/etc/mine", f"{MARK}\nGRUB_TIMEOUT=1\n")
        tree.at(DROP_IN).unlink()
        tree.at(DROP_IN).symlink_to(tree.root / "etc/mine")
    before = files(tree)
    with pytest.raises(
        MachineError, match=r"99-tailtap.cfg is there, and tailtap did not write it"
    ):
        install(tree, asked(tree), journals)
    if how == "file":
        assert remove(tree, journals).left == []
    assert files(tree) == before
    assert list(read_all(journals)) == []


def test_what_somebody_changed_in_our_file_is_left(tree: Tree, journals: Path) -> None:
    with_grub(tree.root)
    install(tree, asked(tree), journals)
    text = tree.text(DROP_IN) + "\nGRUB_TIMEOUT=1\n"
    tree.at(DROP_IN).write_text(text)
    done = remove(tree, journals)
    assert done.removed == []
    assert done.left == [f"somebody else changed {DROP_IN}: it is left as it is"]
    assert tree.at(DROP_IN).read_text() == text
    assert remove(tree, journals).left == [f"no journal knows {DROP_IN}: remove it by hand"]


def test_it_survives_a_reboot_and_clean_leaves_it(tree: Tree, journals: Path) -> None:
    with_grub(tree.root)
    before = files(tree)
    install(tree, asked(tree), journals)
    [path] = journals.glob("*.journal")
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), "boot_id": "another"}), *rest, ""]))
    assert {item.owner for item in clean.find(journals) if item.journal} <= {"kept"}
    clean.remove([item for item in clean.find(journals) if item.owner != "kept"])
    assert tree.exists(DROP_IN)
    assert remove(tree, journals).removed == [DROP_IN]
    assert files(tree) == before


def test_remove_leaves_other_tuning(tree: Tree, journals: Path) -> None:
    from tailtap.host.tuning.apply import apply, plan

    with_grub(tree.root)
    apply(plan(tree, Purpose.of(tree, cpus="2-3"), ["stat-interval"]), journals)
    install(tree, asked(tree), journals)
    assert remove(tree, journals).removed == [DROP_IN]
    assert tree.text("/proc/sys/vm/stat_interval") == "3600"
    assert revert(journals).undone == ("/proc/sys/vm/stat_interval",)


STEPS = (
    (journal, "append"), (loaders, "write_text"), (Path, "mkdir"), (Path, "unlink"),
    (Path, "rmdir"), (journal.Journal, "close"),
)  # fmt: skip


@pytest.mark.parametrize("at", range(14))
def test_killed_at_any_step(
    tree: Tree, journals: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    with_grub(tree.root)
    before = files(tree)
    monkeypatch.setattr(Owner, "alive", property(lambda _self: False))
    for step in (lambda: install(tree, asked(tree), journals), lambda: remove(tree, journals)):
        with dying(at, *STEPS):
            step()
    draft = tree.at(DROP_IN).with_name(f"{DRAFT}99")
    if draft.parent.is_dir():
        draft.write_text("half")
    remove(tree, journals)
    revert(journals)
    draft.unlink(missing_ok=True)
    assert tree.look(DROP_IN) is None
    after = files(tree)
    after.pop("etc/default/grub.d", None)
    assert after == before


def stale(tree: Tree) -> str:
    """What the audit and `bootline` say of our entry; both say the same."""
    [row] = audit(tree, Purpose.of(tree, "bare-metal", "2-3"), ["boot-entry"]).rows
    assert row.value is not None, row.why
    assert row.answer == ("met" if row.value == FINE else "not-met")
    clauses = [] if row.value == FINE else row.value.split("; ")
    assert [clause for clause in asked(tree).wrong if clause in clauses] == clauses
    return row.value


def newer(text: str, release: str) -> str:
    return text.replace(RELEASE, release)


def test_an_entry_of_an_old_kernel_is_noticed(tree: Tree, journals: Path) -> None:
    with_systemd_boot(tree.root)
    purpose = Purpose.of(tree, "bare-metal", "2-3")
    [row] = audit(tree, purpose, ["boot-entry"]).rows
    assert row.answer == "not-applicable"
    folder = tree.root / "boot/loader/entries"
    kernel = tree.root / f"boot/{MACHINE}/{RELEASE}"
    write(kernel, "linux", "")
    write(kernel, "initrd.img", "")
    install(tree, asked(tree), journals)
    assert stale(tree) == FINE
    # Another flavour, an older kernel and a release candidate of ours are no reason.
    for release in ("6.13.1-rt-amd64", "6.12.9-amd64", "6.12.48-rc3-amd64"):
        write(folder, f"{MACHINE}-{release}.conf", newer(ENTRY_TEXT, release))
    assert stale(tree) == FINE
    write(folder, "other-system.conf", f"machine-id 1\n{newer(ENTRY_TEXT, '6.14.1-amd64')}")
    assert stale(tree) == FINE
    new = f"{MACHINE}-6.12.101-amd64.conf"
    write(folder, new, newer(ENTRY_TEXT, "6.12.101-amd64"))
    mends = f"`tailtap host bootline --install --entry {new}` makes it anew"
    assert stale(tree) == (
        f"_-tailtap.conf boots {RELEASE}, and {new} boots the newer 6.12.101-amd64; {mends}"
    )
    # Its kernel is removed, and then its entry.
    (kernel / "linux").unlink()
    assert f"_-tailtap.conf boots /{MACHINE}/{RELEASE}/linux, which is not there" in stale(tree)
    (folder / ENTRY).unlink()
    assert f"_-tailtap.conf is a copy of {ENTRY}, which is not there" in stale(tree)
    # What it says to do mends it.
    write(tree.root / f"boot/{MACHINE}/6.12.101-amd64", "linux", "")
    write(tree.root / f"boot/{MACHINE}/6.12.101-amd64", "initrd.img", "")
    step = install(tree, asked(tree), journals, entry=new)
    assert step.difference
    assert stale(tree) == FINE


@pytest.mark.parametrize(
    ("old", "new"), [("ro quiet", "ro quiet splash"), ("initrd.img", "initrd-2.img")]
)
def test_an_entry_that_has_changed_since_it_was_copied_is_noticed(
    tree: Tree, journals: Path, old: str, new: str
) -> None:
    with_systemd_boot(tree.root)
    for name in ("linux", "initrd.img", "initrd-2.img"):
        write(tree.root / f"boot/{MACHINE}/{RELEASE}", name, "")
    install(tree, asked(tree), journals)
    write(tree.root, f"/boot/loader/entries/{ENTRY}", ENTRY_TEXT.replace(old, new))
    assert stale(tree) == (
        f"{ENTRY} has changed since _-tailtap.conf was copied from it; "
        f"`tailtap host bootline --install --entry {ENTRY}` makes it anew"
    )
    install(tree, asked(tree), journals)
    assert stale(tree) == FINE
