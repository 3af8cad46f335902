"""The wheel works alone: no compiler, no headers, no checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from captures import write_many
from sites import write_site
from wheels import build, run

NEEDS = """
from importlib.metadata import requires, version
from packaging.requirements import Requirement
for one in map(Requirement, requires("tailtap")):
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        assert version(one.name) in one.specifier, one
"""
"""Whether all that the wheel says it needs is there."""


@pytest.mark.timeout(1800)
def test_a_fresh_environment_evaluates_captures(tmp_path: Path) -> None:
    [wheel] = build("wheel-here", tmp_path / "dist")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv/bin"
    python = binaries / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    # What it depends on is seen where it is installed already, and nothing else that is there: a
    # folder that a path file names has no path files of its own, such as that of the checkout.
    [packages] = (tmp_path / "venv/lib").glob("python*/site-packages")
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib"))
    run(python, "-c", NEEDS)
    write_many(tmp_path / "in.pcap", range(10**9, 10**9 + 100_000, 1_000), range(100))
    write_many(tmp_path / "out.pcap", range(10**9 + 700, 10**9 + 100_700, 1_000), range(100))
    # Nothing but the wheel's own programs on the path: no clang, no cargo.
    alone = {"PATH": str(binaries), "HOME": str(tmp_path), "LANG": os.environ.get("LANG", "C")}
    captures = [tmp_path / "in.pcap", tmp_path / "out.pcap"]
    found = json.loads(run(binaries / "tailtap", "evaluate", *captures, "--json", env=alone))
    assert found["counts"]["matched"] == 100
    assert found["latency_ns"]["max"] == 700
    assert (tmp_path / "venv/share/man/man1/tailtap-host-audit.1").is_file()
    # What was published with this checkout is repeated without it, in another place.
    write_site(tmp_path / "made").rename(tmp_path / "site")
    words = ("reproduce", tmp_path / "site", "--level", "captures", "--json")
    found = json.loads(run(binaries / "tailtap", *words, env=alone))
    assert found["answer"] == "reproduced"
    # The eBPF programs are inside: a tap asks for an interface, not for a compiler.
    tap = subprocess.run(
        [binaries / "tailtap", "tap", "tt-none", "--write", tmp_path / "x.stamps"],
        check=False, capture_output=True, text=True, env=alone,
    )  # fmt: skip
    assert tap.returncode in (2, 3)
    assert "tt-none" in tap.stderr or "root" in tap.stderr
