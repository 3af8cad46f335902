"""A program of the name `systemctl`, which stands in for systemd's own where that does not run.

It keeps units in a file, answers as systemctl(1) does, and gives slices their CPUs in the control
groups of a scratch machine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python} -P
import json, sys
from pathlib import Path

folder, root = Path({folder!r}), Path({root!r})
units = json.loads((folder / "units").read_text())
calls = folder / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + " ".join(sys.argv[1:]) + chr(10))
match sys.argv[1:]:
    case ["show", "--property", names, *asked]:
        blocks = []
        for name in asked:
            unit = {{"Id": name, "LoadState": "not-found", "ActiveState": "inactive",
                    "AllowedCPUs": ""}} | units.get(name, {{}})
            blocks.append(chr(10).join(f"{{key}}={{unit[key]}}" for key in names.split(",")))
        print((chr(10) * 2).join(blocks))
    case [("start" | "stop") as what, *asked]:
        for name in asked:
            if name not in units:
                sys.exit(f"Failed to {{what}} {{name}}: Unit {{name}} not loaded.")
            if not units[name].get("stubborn"):
                units[name]["ActiveState"] = "active" if what == "start" else "inactive"
    case ["set-property", "--runtime", name, value]:
        cpus = value.removeprefix("AllowedCPUs=")
        units[name]["AllowedCPUs"] = cpus.replace(",", " ")
        file = root / "sys/fs/cgroup" / name / "cpuset.cpus.effective"
        online = (root / "sys/devices/system/cpu/online").read_text().strip()
        file.write_text((cpus or online) + chr(10))
    case words:
        sys.exit(f"Unknown command verb {{words}}.")
(folder / "units").write_text(json.dumps(units))
"""


@dataclass(frozen=True)
class Systemctl:
    """Where the program keeps its units."""

    folder: Path

    @property
    def units(self) -> dict[str, dict[str, Any]]:
        """Each unit's properties."""
        found: dict[str, dict[str, Any]] = json.loads((self.folder / "units").read_text())
        return found

    def set(self, name: str, **properties: Any) -> None:
        """Make a unit, or change it behind tailtap's back."""
        units = self.units
        units[name] = units.get(name, {"LoadState": "loaded"}) | properties
        (self.folder / "units").write_text(json.dumps(units))

    @property
    def calls(self) -> list[str]:
        """What it was called with, without questions."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not line.startswith("show")]


def playing_systemd(folder: Path, root: Path, patch: pytest.MonkeyPatch) -> Systemctl:
    """Let systemd run on the scratch machine below `root`, by a program in `folder`."""
    folder.mkdir()
    (folder / "units").write_text("{}")
    program = folder / "systemctl"
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder), root=str(root)))
    program.chmod(0o755)
    (root / "run/systemd/system").mkdir(parents=True)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Systemctl(folder)
