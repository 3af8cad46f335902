"""A program of the name `systemctl`, which stands in for systemd's own where that does not run.

It keeps units in a file, answers as systemctl(1) does, and gives slices their CPUs in the control
groups of a scratch machine.
"""

from __future__ import annotations

import sys
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# It imports nothing, as that takes twice as long as to start.
PROGRAM = """#!{python} -IS
import sys

folder, root = {folder!r}, {root!r}
with open(folder + "/units") as file:
    units = eval(file.read())
with open(folder + "/calls", "a") as file:
    print(*sys.argv[1:], file=file)
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
        with open(root + "/sys/devices/system/cpu/online") as file:
            online = file.read().strip()
        with open(f"{{root}}/sys/fs/cgroup/{{name}}/cpuset.cpus.effective", "w") as file:
            print(cpus or online, file=file)
    case words:
        sys.exit(f"Unknown command verb {{words}}.")
with open(folder + "/units", "w") as file:
    file.write(repr(units))
"""


@dataclass(frozen=True)
class Systemctl:
    """Where the program keeps its units."""

    folder: Path

    @property
    def units(self) -> dict[str, dict[str, Any]]:
        """Each unit's properties."""
        found: dict[str, dict[str, Any]] = literal_eval((self.folder / "units").read_text())
        return found

    def set(self, name: str, **properties: Any) -> None:
        """Make a unit, or change it behind tailtap's back."""
        units = self.units
        units[name] = units.get(name, {"LoadState": "loaded"}) | properties
        (self.folder / "units").write_text(repr(units))

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
