"""Result trees of pos, read as the scripts that are published with such trees read them.

Nothing of tailtap is used here. What the scripts do: gallenmu/pos-artifacts finds loop files and
MoonGen's logs and histograms by wildcards in the folder of a host, and takes the number of a run
from the text between `_run` and the suffix. gallenmu/latency-limbo pairs `*.loop` with the result
files in `data/` by the digits behind `run`, as text. Its importer makes pairs of captures.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import yaml


def loops_of_artifacts(host: Path) -> dict[int, dict[str, Any]]:
    """The loop variables of each run."""
    return {
        int(path.name.split("_run")[1].split(".loop")[0]): json.loads(path.read_text())
        for path in sorted(host.glob("*_unknown_run*.loop"))
    }


def throughput_of_artifacts(host: Path) -> dict[int, dict[str, Any]]:
    """For each run packets per second in each direction, and the totals behind them."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(host.glob("throughput_run*.log")):
        run = found.setdefault(int(path.name.split("_run")[1].split(".")[0]), {})
        for line in path.read_text().splitlines():
            if "[Device: id=" not in line or not ("RX" in line or "TX" in line):
                continue
            device, rest = line.split("] ")
            int(device.split("=")[-1])
            words = rest.split(" ")
            direction = run.setdefault(words[0][:2], {"mpps": [], "mbit": [], "framed": []})
            if "StdDev" in line and "total" in line:
                direction["mean"] = float(words[1]), float(words[5]), float(words[9][1:])
                direction["total"] = int(words[words.index("total") + 1])
            else:
                direction["mpps"].append(float(words[1]))
                direction["mbit"].append(float(words[3]))
                direction["framed"].append(float(words[5][1:]))
    return found


def histograms_of_artifacts(host: Path) -> dict[int, dict[int, int]]:
    """For each run how often each latency in ns occurred."""
    found = {}
    for path in sorted(host.glob("histogram_run*.csv")):
        rows = [line.split(",") for line in path.read_text().splitlines()]
        run = int(path.name.split("_run")[1].split(".")[0])
        found[run] = {int(latency): int(count) for latency, count in rows}
    return found


def plots_of_limbo(folder: Path, kind: str) -> list[tuple[dict[str, Any], list[dict[str, str]]]]:
    """The loop variables and rows of each result file of a kind, in the order of their names."""
    loops = {}
    for path in sorted(folder.glob("*.loop")):
        loops[re.findall(r"run\d+", path.stem)[-1][3:]] = yaml.safe_load(path.read_text())
    found = []
    for path in sorted((folder / "data").glob(f"*.{kind}.csv")):
        run = re.findall(r"run\d+", path.stem)[0][3:]
        with path.open(newline="") as file:
            found.append((loops[run], list(csv.DictReader(file))))
    return found


def page_of_artifacts(tree: Path, host: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What a published page shows: id, variables of the loop and of a host."""
    allocation = json.loads((tree / "config/allocation.json").read_text())
    variables = allocation["variables"]
    assert isinstance(variables["global"], dict)
    return allocation["id"], variables["loop"], variables[host]
