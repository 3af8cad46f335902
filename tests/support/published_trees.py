"""Result trees as others publish them: written by our exporter, whose bytes are theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

from experiment_folders import write_experiment, write_run

from tailtap.results.exporters import export
from tailtap.results.importers.importer import import_tree


def write_tree(folder: Path, *, packets: int = 3_000) -> tuple[Path, Path]:
    """An experiment of ours, and what it looks like as published result files."""
    experiment = write_experiment(folder / "experiment", packets=packets)
    export(experiment, "papers", folder / "tree")
    return experiment, folder / "tree"


def write_rates(folder: Path, rates: list[int], *, packets: int = 300) -> Path:
    """A published tree of one run a rate, in one folder."""
    write_run(folder / "one", 1, {"dut.platform": "wire"}, packets=packets)
    export(folder / "one", "papers", folder / "once")
    tree = folder / "many"
    (tree / "wire").mkdir(parents=True)
    for path in (folder / "once").rglob("latencies-pre*"):
        for rate in rates:
            shutil.copy(path, tree / "wire" / path.name.replace("rate10000", f"rate{rate}"))
    return tree


def write_mixed(folder: Path, *, packets: int = 20_000) -> Path:
    """Two runs of our own, and four imported ones beside them.

    Of the imported ones, `whole` is our own second run as others would publish it, `counted`
    lacks its percentiles, `uncounted` its histogram and counts, and of `worst` there are only the
    worst packets.
    """
    experiment = folder / "experiment"
    write_run(experiment, 1, {"dut.platform": "wire"}, packets=packets)
    write_run(experiment, 2, {"dut.platform": "bare-metal"}, packets=packets)
    export(experiment, "papers", folder / "exported")
    published = folder / "exported" / "bare-metal"
    lacking = {
        "whole": (),
        "counted": ("percentiles",),
        "uncounted": ("hist", "stats", "transferrate"),
        "worst": ("percentiles", "hist", "jitter", "packetrate", "stats", "transferrate"),
    }
    for name, kinds in lacking.items():
        place = folder / "tree" / "measurements" / name
        shutil.copytree(published, place)
        for path in place.iterdir():
            if any(f".{kind}" in path.name for kind in kinds):
                path.unlink()
    import_tree(folder / "tree", experiment / "results.duckdb")
    return experiment
