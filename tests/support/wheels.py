"""Wheels of this project, and of the packages that it is locked to."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """What a command prints that succeeds; elsewhere than in the checkout."""
    text = [str(part) for part in command]
    done = subprocess.run(text, check=False, capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(target: str, folder: Path) -> list[Path]:
    """What `make TARGET` builds."""
    run("make", "--directory", ROOT, target, f"DIST={folder}")
    return sorted(folder.glob("tailtap-*.whl"))


def constraints(folder: Path) -> Path:
    """A file of the locked versions, for pip."""
    locked = (ROOT / "requirements.lock").read_text()
    file = folder / "constraints.txt"
    file.write_text("\n".join(re.findall(r"^[^ ]+==[^ ]+(?: ;[^\\]+)?", locked, re.MULTILINE)))
    return file


def gather(wheel: Path, machine: str, folder: Path) -> None:
    """A wheel and all that it needs on such a machine with glibc 2.28, for Python 3.11."""
    folder.mkdir()
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)]
    platforms += [f"--platform=manylinux2014_{machine}"]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
        "--python-version", "3.11", *platforms, "--dest", folder,
        "--constraint", constraints(folder.parent), wheel)  # fmt: skip
    shutil.copy(wheel, folder)
