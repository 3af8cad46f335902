"""Published runs as rows of `results.duckdb`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailtap import _core
from tailtap.base.files import slugify
from tailtap.base.units import exact_rate, format_time
from tailtap.records.record import Notice
from tailtap.results.importers.importable import Content, Row
from tailtap.results.importers.published import PublishedRun

#: More packets after the device without a match than this share are a warning.
UNMATCHED_LIMIT = 0.001
MILLISECOND_NS = 1_000_000
SIDES = {"ingress": "pre", "egress": "post"}


@dataclass
class Published:
    """A published run, as an import wants it."""

    run: PublishedRun

    @property
    def warnings(self) -> list[Notice]:
        """Those of its files."""
        return self.run.warnings

    @warnings.setter
    def warnings(self, warnings: list[Notice]) -> None:
        self.run.warnings = warnings

    @property
    def source(self) -> str:
        """Its folder, capture and trim."""
        return self.run.source

    @property
    def digest(self) -> str | None:
        """That of its files."""
        return self.run.digest

    def read(self) -> Content:
        """What its files say."""
        return content_of(self.run)

    def row(self, experiment: str) -> Row:
        """Its row, from the names of its files."""
        run = self.run
        name = run.capture.removeprefix("latencies-pre").split(".")[0]
        parts = [slugify(run.place), slugify(name)]
        if run.trim_ms:
            parts.append(f"trim{run.trim_ms}ms")
        variables: dict[str, Any] = {"source": run.place}
        parameters: dict[str, Any] = {
            "source": run.source,
            "digest": run.digest,
            "evaluation": settings_of(run),
        }
        if run.rate is not None:
            variables["traffic.rate"] = exact_rate(run.rate)
            parameters["traffic"] = {"rate": run.rate}
        if run.addition:
            variables["capture"] = run.addition
        if run.trim_ms:
            variables["evaluation.trim"] = format_time(run.trim_ms * MILLISECOND_NS)
        slug = "-".join(part for part in parts if part)
        return Row(slug, experiment, run.repeat, variables, parameters)


def settings_of(run: PublishedRun) -> dict[str, int | None]:
    """How a run was evaluated, by the names of its files; times in ns."""
    return {"trim": run.trim_ms * MILLISECOND_NS, "bucket": run.bucket_ns}


def content_of(run: PublishedRun) -> Content:
    """The rows of a run from its files. Warns about packets that its statistics leave out."""
    read = run.read()
    evaluation = evaluation_of(read)
    warning = _unmatched(run, evaluation)
    if warning is not None:
        run.warnings.append(warning)
    return Content(evaluation, tables_of(read, evaluation))


def evaluation_of(read: Mapping[str, pa.Table]) -> dict[str, Any]:
    """The row of `evaluations` from a run's files; what they do not contain is None.

    Empty without any file that counts packets. `lost` is, as in the published files, the packets
    before the device minus those after it. `unmatched_egress` are all packets after the device
    without a latency, whatever the reason.
    """
    counts: dict[str, int] = {}
    if "stats" in read:
        counts = read["stats"].to_pylist()[0]
    elif "transferrate" in read:
        row = read["transferrate"].to_pylist()[0]
        counts = {f"{name}_trimmed": row[name] for name in ("pre_received", "post_received")}
    pre, post = counts.get("pre_received"), counts.get("post_received")
    kept = counts.get("pre_received_trimmed"), counts.get("post_received_trimmed")
    matched = int(pc.sum(read["hist"]["count"]).as_py()) if "hist" in read else None
    if not counts and matched is None:
        return {}
    before, after = kept
    percentiles = read["percentiles"]["value"].to_pylist() if "percentiles" in read else []
    first = read["percentiles"]["percentile"][0].as_py() if percentiles else None
    return {
        "key": "signature",
        "ingress": before if pre is None else pre,
        "egress": after if post is None else post,
        "matched": matched,
        "lost": None if before is None or after is None else max(before - after, 0),
        "unmatched_egress": None if after is None or matched is None else max(after - matched, 0),
        "trimmed_ingress": None if pre is None or before is None else pre - before,
        "trimmed_egress": None if post is None or after is None else post - after,
        "min_ns": percentiles[0] if first == 0 else None,
        "max_ns": int(pc.max(read["worst"]["latency"]).as_py()) if "worst" in read else None,
    }


def tables_of(read: Mapping[str, pa.Table], evaluation: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The tables of own runs from a run's files, without the run's number."""
    found: dict[str, pa.Table] = {}
    if "percentiles" in read:
        found["percentiles"] = _percentiles(read["percentiles"], evaluation.get("matched"))
    if "hist" in read:
        found["histogram"] = read["hist"].rename_columns(["bucket_ns", "count"])
    if "worst" in read:
        names = ["latency_ns", "ingress_ns", "egress_ns", "key"]
        found["worst"] = read["worst"].rename_columns(names)
    for name, kind, columns in (
        ("gaps", "jitter", ["bucket_ns", "count"]),
        ("rates", "packetrate", ["start_ns", "packets"]),
    ):
        sides = [
            read[kind + end]
            .rename_columns(columns)
            .add_column(0, "side", pa.repeat(side, len(read[kind + end])))
            for side, end in SIDES.items()
            if kind + end in read
        ]
        if sides:
            found[name] = pa.concat_tables(sides)
    return found


def _percentiles(read: pa.Table, matched: int | None) -> pa.Table:
    """Published percentiles with what follows from their rank; the files have no interval."""
    count = len(read)
    above = pa.nulls(count, pa.int64())
    supported = pa.repeat(False, count)
    if matched:
        # Ranks follow from the number of packets alone.
        one, packets = np.zeros(1, np.int64), np.array([matched], np.int64)
        ranks = _core.percentiles(one, packets, read["percentile"].to_pylist())
        above, supported = (
            pa.array(ranks["above"], pa.int64()),
            pa.array(ranks["supported"], pa.bool_()),
        )
    unknown = pa.nulls(count, pa.int64())
    return pa.table(
        {
            "p": read["percentile"],
            "value": read["value"],
            "low": unknown,
            "high": unknown,
            "above": above,
            "supported": supported,
        }
    )


def _unmatched(run: PublishedRun, evaluation: Mapping[str, Any]) -> Notice | None:
    """A warning about a run that left too many packets after the device out of its statistics."""
    matched, unmatched = evaluation.get("matched"), evaluation.get("unmatched_egress")
    if matched is None or not unmatched:
        return None
    share = unmatched / (matched + unmatched)
    if share <= UNMATCHED_LIMIT:
        return None
    return Notice(
        "unmatched-egress",
        f"{run.source}: {unmatched} packets after the device ({share:.2%}) match none before it "
        "and are in none of its latencies",
    )
