"""An experiment's folder in which whatever identifies stands wherever a run may keep it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from experiment_folders import write_run

HOST = "muskrat.lab.example-university.de"
PLANTED: Mapping[str, tuple[str, ...]] = {
    "hostnames": (HOST, "muskrat", "wombat.example-university.de", "bmc-7.example-university.de"),
    "users": ("ferdinand", "operator77"),
    "macs": ("3c:fd:fe:a1:b2:c3", "3c-fd-fe-a1-b2-c4", "3cfdfea1b2c5"),
    "addresses": ("131.159.14.77", "2a00:4700:0:5::beef", "131.159.14.78"),
    "ids": (
        "5f0c1b1e-91a3-4d43-8d5c-0c2a9d3bb001",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "77e41d5c-aaaa-4bbb-8ccc-0123456789ab",
    ),
    "serials": ("PHYF1234007X480B", "S3Z8NB0K123456", "CZ20240117-0042"),
    "secrets": ("correct-horse-9",),
}
"""What is in the folder, by its kind."""
EXPERIMENT = f"""# Measured by ferdinand@example-university.de on {HOST}
name: planted
dut: {{platform: bare-metal, forwarder: tc-mirred, cpus: [1]}}
traffic: {{rate: 10 kpkt/s, size: 64 B, duration: 2 s}}
vary:
  traffic.rate: [10 kpkt/s, 50 kpkt/s]
require: ["p99 < 1 s"]
figures:
  - {{kind: hdr, name: figure-1, title: Both rates, series: traffic.rate}}
  - {{kind: tail-latency, name: table-1, series: traffic.rate}}
"""
TESTBED = f"""hosts:
  muskrat:
    ssh: ferdinand@{HOST}
    power: {{address: bmc-7.example-university.de, user: operator77}}
  tester: {{ssh: root@wombat.example-university.de}}
cables: [{{ends: ["tester:enp1s0f0", "muskrat:enp3s0f0"]}}]
roles: {{dut: muskrat, generator: tester, timestamper: tester}}
"""
LOG = f"""opened /home/ferdinand/build/forwarder on muskrat, 131.159.14.77, [2a00:4700:0:5::beef]
port 3c:fd:fe:a1:b2:c3 and 3c-fd-fe-a1-b2-c4, enx3cfdfea1b2c5, version 22.11.4.1
Serial Number: CZ20240117-0042, password=correct-horse-9, by {HOST.upper()}
disk /dev/disk/by-id/S3Z8NB0K123456 uuid 77e41d5c-aaaa-4bbb-8ccc-0123456789ab
"""


def environment() -> dict[str, Any]:
    return {
        "hostname": HOST,
        "boot_id": PLANTED["ids"][0],
        "kernel": {
            "release": "6.18.5",
            "command_line": f"root=UUID={PLANTED['ids'][2]} systemd.machine_id={PLANTED['ids'][1]} "
            "ip=131.159.14.77 isolcpus=1",
        },
        "cpu": {"model": "Intel Xeon D-1518"},
        "nics": [{"name": "enp3s0f0", "firmware": "9.30.0.1", "bus": "0000:03:00.0"}],
        "versions": {"tailtap": "0.1.0", "lxc": "5.0.2.1"},
    }


def write_planted(folder: Path) -> Path:
    described = {
        "environment": environment(),
        "stations": {"generator": {"environment": {"hostname": PLANTED["hostnames"][2]}}},
        "platform": {"cards": {"tt-in": {"driver": "ice", "mac": "3c:fd:fe:a1:b2:c3"}}},
        "forwarder": {"serial_number": "PHYF1234007X480B", "uuid": PLANTED["ids"][2]},
    }
    for number, rate in enumerate((10_000, 50_000), 1):
        run = write_run(
            folder,
            number,
            {"traffic.rate": f"{rate // 1000} kpkt/s"},
            packets=3_000,
            rate=rate,
            name="planted",
            warnings=[{"code": "steal", "message": "31 ms were stolen on muskrat (131.159.14.78)"}],
            changes=described,
        )
        _plant(run)
    write_run(
        folder,
        3,
        {"traffic.rate": "1 Mpkt/s"},
        status="failed",
        name="planted",
        error=f"{HOST}: /home/ferdinand/x: no such file",
    )
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    (folder / "testbed.yaml").write_text(TESTBED)
    return folder


def _plant(run: Path) -> None:
    (run / "forwarder.log").write_text(LOG)
    (run / "crash.log").write_text("File '/home/ferdinand/tailtap/x.py', on muskrat")
    (run / "notes.bin").write_bytes(HOST.encode())
    (run / "tail.png").write_bytes(HOST.encode())
    for name in ("ingress", "egress"):
        (run / f"{name}.stamps").write_bytes(name.encode() * 100)
    evaluation = json.loads((run / "evaluation/evaluation.json").read_text())
    evaluation["inputs"]["ingress"]["path"] = f"/home/ferdinand/{run.name}/ingress.stamps"
    (run / "evaluation/evaluation.json").write_text(json.dumps(evaluation))
    for name, column, text in (
        ("losses", "flow", "udp 10.0.0.1:1024 > 131.159.14.77:"),
        ("worst", "key", f"{HOST} "),
    ):
        path = run / f"evaluation/{name}.parquet"
        table = pq.read_table(path)
        texts = pa.array([f"{text}{row}" for row in range(len(table))])
        place = table.schema.get_field_index(column)
        pq.write_table(table.set_column(place, column, texts), path)
