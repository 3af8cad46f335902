"""`tailtap host bootline` on the machine that runs the tests; nothing is installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from program import one_line_error, tailtap

from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders import LOADERS

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
def test_bad_usage_is_one_line(options: tuple[str, ...], said: str) -> None:
    assert said in one_line_error(tailtap("host", "bootline", *options), 2)


@pytest.mark.skipif(not NOT_HERE, reason="this machine has a boot loader")
def test_a_machine_without_a_boot_loader() -> None:
    made = tailtap("host", "bootline", "--install", "--dry-run", "--quiet")
    assert made.returncode == 3
    assert "neither GRUB nor systemd-boot" in made.stderr.splitlines()[-1]
