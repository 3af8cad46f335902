"""`tailtap host` on the machine that runs the tests: nothing is set and nothing installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from program import one_line_error, tailtap

from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import GROUPS
from tailtap.host.knobs.purpose import ROLES
from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders import LOADERS

CPUS = max(os.sched_getaffinity(0)) + 1


def test_an_audit_as_json_holds_every_knob() -> None:
    run = tailtap("host", "audit", "--json")
    content = json.loads(run.stdout)
    assert content["schema"] == "tailtap.audit/1"
    assert [row["name"] for row in content["rows"]] == [knob.name for knob in KNOBS]
    assert run.returncode == (0 if content["met"] else 1)
    assert content["met"] == all(row["answer"] != "not-met" for row in content["rows"])
    for row in content["rows"]:
        assert row["answer"] in ("met", "not-met", "not-applicable", "unknown"), row
        assert row["settable"] in ("runtime", "boot", "no"), row
        assert row["why"] and row["source"], row
        if row["answer"] in ("met", "not-met"):
            assert row["value"] is not None and row["wanted"] is not None, row


@pytest.mark.parametrize("role", ROLES)
def test_every_role_can_be_audited(role: str) -> None:
    run = tailtap("host", "audit", "--role", role)
    assert run.returncode in (0, 1), run
    assert run.stdout.startswith(f"{role}, device on ")
    assert run.stderr == ""


def test_a_named_knob_is_explained() -> None:
    run = tailtap("host", "audit", "stat-interval")
    assert "stat-interval" in run.stdout
    assert "folds each core's memory" in " ".join(run.stdout.split())
    assert "transparent-huge-pages" not in run.stdout
    brief = tailtap("host", "audit", "--quiet", *GROUPS)
    assert brief.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("audit", "--cpus", "4096"), "--cpus: this machine has no CPU 4096: it has"),
        (("audit", "--cpus", "x"), "--cpus x: this is no list of CPUs"),
        (("audit", "--role", "bare"), "'bare' is not one of 'bare-metal', 'container'"),
        (("audit", "stat-intervall"), "no knob or group 'stat-intervall': did you mean"),
        (("apply", "--dry-run", "--interface", "none0"), "--interface: there is no 'none0'"),
        (("apply", "--dry-run", "skew-tick"), "skew-tick is set on the kernel's command line"),
        (("apply", "--dry-run", "swap"), "swap cannot be set by tailtap"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str) -> None:
    assert message in one_line_error(tailtap("host", *words), 2)


@pytest.mark.skipif(CPUS < 2, reason="with one CPU nothing can overlap")
def test_cores_that_leave_nothing_or_are_both_are_refused() -> None:
    every = f"0-{(os.cpu_count() or 1) - 1}"
    said = one_line_error(tailtap("host", "apply", "--cpus", every), 2)
    assert "leaves no housekeeping core" in said
    said = one_line_error(tailtap("host", "audit", "--cpus", "0", "--housekeeping", "0"), 2)
    assert "--cpus and --housekeeping both have CPU 0" in said


NOT_HERE = not any(loader.found(Tree(Path("/"))) for loader in LOADERS.values())


def test_the_purpose_decides() -> None:
    content = json.loads(tailtap("host", "bootline", "--json", "skew-tick").stdout)
    assert content["line"] == "skew_tick=1"
    if len(os.sched_getaffinity(0)) > 1:
        made = tailtap(
            "host", "bootline", "--quiet", "--cpus", "0", "isolated-cpus", "--role", "bare-metal"
        )
        assert made.stdout == "isolcpus=domain,managed_irq,0\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--install", "--remove"), "--install and --remove exclude each other"),
        (("--loader", "grub"), "--loader is for --install"),
        (("--remove", "--entry", "a.conf"), "--entry is for --install"),
        (("--dry-run",), "--dry-run is for --install and --remove"),
        (("--with", "nohz-ful"), "no knob or group 'nohz-ful': did you mean 'nohz-full'"),
        (("hung-task",), "hung-task is no word of the kernel's command line"),
        (("--cpus", "9999"), "--cpus: this machine has no CPU 9999"),
    ],
)
def test_a_bad_line_is_told(options: tuple[str, ...], said: str) -> None:
    assert said in one_line_error(tailtap("host", "bootline", *options), 2)


@pytest.mark.skipif(not NOT_HERE, reason="this machine has a boot loader")
def test_a_machine_without_a_boot_loader() -> None:
    made = tailtap("host", "bootline", "--install", "--dry-run", "--quiet")
    assert made.returncode == 3
    assert "neither GRUB nor systemd-boot" in made.stderr.splitlines()[-1]


def test_a_bad_export_is_told(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("vm.swappiness = 1\n")
    cases = {
        ("--format", "tund"): "'tund' is not one of 'tuned', 'sysctl', 'ansible'",
        ("--format", "tuned", "--out", str(mine)): "is there, and is no export: name another file",
        ("--format", "tuned", "nothing"): "there is no knob or group 'nothing'",
    }
    for options, said in cases.items():
        assert said in one_line_error(tailtap("host", "export", *options), 2)
    done = tailtap("host", "export", "--format", "tuned", "--out", str(mine / "x"))
    said = "x: cannot write: Not a directory: name another file by --out"
    assert said in one_line_error(done, 3)
    assert mine.read_text() == "vm.swappiness = 1\n"
    assert "--format" in tailtap("host", "export").stderr
