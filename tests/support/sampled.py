"""Packets that are late where a counter of interrupts rises, and samples by another recorder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from captures import write_many

from tailtap.analysis.evaluation import evaluate

MS = 1_000_000
AHEAD_NS = 7_000 * MS
"""How far the clock of the captures is ahead of the recorder's."""
SAMPLES = "irq.csv"


def write_sampled(folder: Path, packets: int = 20_000) -> Path:
    """The evaluation of two seconds of traffic; a counter rises in each of 20 bursts of late
    packets. The samples are beside it.
    """
    bursts = np.sort(np.random.default_rng(4).integers(100 * MS, 1_900 * MS, 20))
    times = np.arange(packets) * (2_000 * MS // packets)
    late = np.zeros(packets, np.int64)
    for burst in bursts:
        late[(times >= burst) & (times < burst + MS)] = 80_000
    ingress = [int(time) + AHEAD_NS for time in times]
    write_many(folder / "in.pcap", ingress, range(packets))
    egress = [time + 3_000 + int(wait) for time, wait in zip(ingress, late, strict=True)]
    write_many(folder / "out.pcap", egress, range(packets))
    rows = ["timestamp_us;TLB_shootdowns_CPU1;LOC_Local_timer_interrupts_CPU1"]
    for sample in range(-50, 251):
        now = sample * 10 * MS
        rows.append(f"{(sample + 50) * 10_000};{9 * int((bursts < now).sum())};{sample + 50}")
    (folder / SAMPLES).write_text("\r\n".join(rows) + "\r\n")
    evaluate(folder / "in.pcap", folder / "out.pcap").write(folder / "evaluation")
    return folder / "evaluation"
