"""A small crate of the RISE profile, as pos leaves one."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

CONTENT = b"a result"
FILES = {
    "scripts/dut/2026-01-01_10-00-00_000000_send_run0.loop": b'{"pkt_rate": 1000}',
    "config/allocation.json": b"{}",
    "files/dut/logs_run0/more.txt": b"more",
    "alone.txt": b"alone",
}


def write_crate(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "result.csv").write_bytes(CONTENT)
    loop = next(iter(FILES))
    graph = [
        {"@id": "./", "@type": "Dataset", "name": "A crate"},
        {"@id": "result.csv", "@type": "File", "contentSize": str(len(CONTENT)),
         "sha256": sha256(CONTENT).hexdigest()},
        {"@id": loop, "@type": "LoopRun", "contentSize": str(len(FILES[loop]))},
        {"@id": "files/dut/logs_run0/", "@type": "Dataset"},
    ]  # fmt: skip
    (folder / "ro-crate-metadata.json").write_text(json.dumps({"@graph": graph}))
    return folder
