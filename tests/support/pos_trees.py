"""Small result trees of pos in both layouts, and a crate of the RISE profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from published import SHARED

POS = SHARED / "pos"
RISE = SHARED / "rise"
needs_pos = pytest.mark.skipif(not POS.exists(), reason=f"no sample tree of pos in {SHARED}")
needs_rise = pytest.mark.skipif(not RISE.exists(), reason=f"no RISE crate in {SHARED}")

COMMAND = "2020-10-07_23-27-11_423961_unknown"
SERVER = "2026-06-30_16-48-11_063266_run-server"
CLIENT = "2026-06-30_16-48-11_242541_run-client"


def write_old_tree(
    root: Path, loops: Sequence[dict[str, Any]], hosts: Sequence[str] = ("loadgen", "dut")
) -> Path:
    """A tree as pos left it in 2020: all files of a host in one folder."""
    (root / "config").mkdir(parents=True)
    allocation = {"id": "me_201007", "nodes": list(hosts), "variables": {"global": {}, "loop": {}}}
    (root / "config/allocation.json").write_text(json.dumps(allocation))
    for host in hosts:
        (root / host).mkdir()
        for number, variables in enumerate(loops):
            path = root / host / f"{COMMAND}_run{number}.loop"
            path.write_text(json.dumps(variables))
    return root


def write_histograms(folder: Path, numbers: Sequence[int]) -> None:
    """Latencies as MoonGen counts them, of these runs."""
    for number in numbers:
        rows = [(1_000 + number, 900), (2_000, 90), (50_000, 10)]
        text = "".join(f"{latency},{count}\n" for latency, count in rows)
        (folder / f"histogram_run{number}.csv").write_text(text)


def write_crate(root: Path, loops: Sequence[dict[str, Any]]) -> Path:
    """A tree of pos 3 with the hosts `a` and `b`, and its crate."""
    for host, command in (("a", SERVER), ("b", CLIENT)):
        for folder in ("config", "scripts", "files"):
            (root / folder / host).mkdir(parents=True)
        hardware = {
            "processor": [{"model": "Xeon", "cores": 4}],
            "memory": {"dimms": [{"serial": "5022D077", "type": "DDR3"}]},
            "network": [{"interfaces": [{"mac": "a0:36:9f:00:00:01", "dev_name": "enp2s0f0"}]}],
        }
        (root / f"config/{host}/hardware.json").write_text(json.dumps(hardware))
        topology = {"other": [{"inf_a": "enp2s0f0", "mac_a": "a0:36:9f:00:00:01", "type": "link"}]}
        (root / f"config/{host}/topology.json").write_text(json.dumps(topology))
        for number, variables in enumerate(loops):
            stem = root / f"scripts/{host}/{command}_run{number:02}"
            stem.with_suffix(".loop").write_text(json.dumps(variables, indent=2))
            stem.with_suffix(".status").write_text("finished")
            stem.with_suffix(".stdout").write_text("")
    nodes = {"a": {"role": "server", "image": "debian"}, "b": {"role": "client"}}
    variables = {"loop": {}, "global": {"nodes": nodes}}
    (root / "config/2026-06-30_16-39-33_587610_variables.json").write_text(json.dumps(variables))
    (root / "config/allocation.json").write_text(json.dumps({"id": "me_26", "nodes": ["a", "b"]}))
    graph = [
        {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"}},
        {
            "@id": "./",
            "@type": "Dataset",
            "name": "Three stacks",
            "description": "How quick they are.",
            "author": [{"@id": "https://orcid.org/1"}, {"@id": "https://orcid.org/2"}],
            "license": {"@id": "https://example.org/by-sa"},
            "archivedAt": [{"@id": "https://doi.org/10.5281/zenodo.1"}],
            "conformsTo": {"@id": "https://tumi8.github.io/rise-ro-crate-profile/1.0.0/"},
        },
        {"@id": "https://orcid.org/1", "@type": "Person", "name": "Ada", "alternateName": "ada1"},
        {"@id": "https://orcid.org/2", "@type": "Person", "name": "Grace"},
        {
            "@id": "https://example.org/by-sa",
            "@type": "CreativeWork",
            "name": "Share Alike",
            "alternateName": "CC-BY-SA-4.0",
        },
        {"@id": "config/allocation.json", "@type": "Experiment", "experimentController": []},
        {"@id": "a.example.org", "@type": "ExperimentNode", "name": "a"},
        {"@id": "default/debian", "@type": "OSImage", "name": "debian"},
        {"@id": "config/a/hardware.json", "@type": "File"},
        *(
            {
                "@id": f"scripts/{host}/{command}_run{number:02}.loop",
                "@type": "LoopRun",
                "startTime": f"2026-06-30T16:48:{number:02}.5",
                "endTime": f"2026-06-30T16:49:{number:02}.5",
            }
            for host, command in (("a", SERVER), ("b", CLIENT))
            for number in range(len(loops))
        ),
    ]
    text = json.dumps({"@context": "https://w3id.org/ro/crate/1.2/context", "@graph": graph})
    (root / "ro-crate-metadata.json").write_text(text)
    return root
