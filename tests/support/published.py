"""Real captures and published result files that lie beside the checkout, where they do."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

SHARED = Path(os.environ.get("TAILTAP_SHARED", Path(__file__).parents[3] / "shared")) / "data"
CAPTURES = SHARED / "captures/dpdk-l2fwd-hw"
REFERENCE = CAPTURES / "reference"
PUBLISHED = SHARED / "published"
PRE = CAPTURES / "latencies-pre-rate10000-dpdk-l2fwd.pcap.zst"
POST = CAPTURES / "latencies-post-rate10000-dpdk-l2fwd.pcap.zst"

needs_captures = pytest.mark.skipif(not PRE.exists(), reason=f"no reference captures in {SHARED}")
needs_published = pytest.mark.skipif(
    not PUBLISHED.exists(), reason=f"no published result files in {SHARED}"
)


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed where it is compressed with zstd."""
    with pa.input_stream(
        str(path), compression="zstd" if path.suffix == ".zst" else None
    ) as stream:
        data: bytes = stream.read()
    return data


def reference(kind: str, trim_ms: int) -> bytes:
    """The reference's file of a kind, such as ``percentiles`` or ``hist``."""
    bucket = "bucket100." if kind in ("hist", "jitterpre", "jitterpost") else ""
    name = "worst5000.csv.zst" if kind == "worst" else f"{kind}.csv"
    return content(REFERENCE / f"dpdk-l2fwd-hw.trim_ms{trim_ms}.{bucket}{name}")
