"""The nine CSV files of the published results, for the plot scripts published with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.evaluation.values import Column, Pair, papers
from tailtap.analysis.runs.run import Run
from tailtap.base.files import slugify
from tailtap.records.evaluation import Counts
from tailtap.results.exporters.base import Common, write_text

#: The published lists of worst packets end here.
WORST = 5000
SIGNIFICANT_DIGITS = 16
#: `numeric` calculates in digits of base 10,000: four decimal digits each.
DIGITS = 4
CAPTURE = re.compile(r"latencies-pre[^/]*\.pcap(\.zst)?")


class Papers(Common):
    """Nine files a run, named as the published ones, in a folder for each configuration."""

    summary = "The nine CSV files of the published results for each run."
    documentation = "Named as the published files, in a folder for each configuration."
    name = "papers"

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the files of each run below the folder `destination`."""
        folders = _folders(runs)
        written = []
        for run, folder in zip(runs, folders, strict=True):
            evaluation = run.stored
            stem = file_stem(run, evaluation)
            for suffix, text in files(evaluation).items():
                name = str(Path(folder, f"{stem}.{suffix}.csv"))
                written.append(write_text(Path(destination), name, text))
        return written


def file_stem(run: Run, evaluation: Evaluation) -> str:
    """What the names of a run's files begin with: that of its capture before the device.

    A run of ours is `latencies-pre-rate<pkt/s>-repeat<from 0>.pcap.zst`. An evaluation of a
    capture that is already named so keeps that name; of another, the rate is the measured one.
    """
    rate = run.rate
    if not run.record:
        capture = Path(evaluation.inputs.ingress.path).name
        if CAPTURE.fullmatch(capture):
            return capture
    if rate is None:
        packets = evaluation.rates("ingress")[1]
        rate = round(int(packets.sum()) / max(len(packets), 1))
    return f"latencies-pre-rate{rate}-repeat{run.repeat - 1}.pcap.zst"


def files(evaluation: Evaluation) -> dict[str, str]:
    """The content of the nine files by what their names end with before `.csv`.

    Latencies, stamps and buckets are nanoseconds, `ts` is the start of a second. Percentages are
    quotients as PostgreSQL prints them, so that the bytes are those of the papers' own scripts.
    """
    trim = f"trim_ms{evaluation.options.trim_ns // 1_000_000}"
    bucket = f"bucket_size{evaluation.options.bucket_ns}.{trim}"
    latencies = evaluation.histogram()
    gaps = {side: evaluation.gaps(side) for side in SIDES}
    rates = {side: evaluation.rates(side) for side in SIDES}
    worst = evaluation.worst(WORST)
    matched = evaluation.counts.matched
    kept = WORST if len(worst) >= min(WORST, matched) else len(worst)
    as_hex = evaluation.key == "signature"
    return {
        f"{trim}.percentiles": _csv(
            "percentile,value,onefraconeminuspercentile", _percentiles(evaluation)
        ),
        f"{bucket}.hist": _csv("latency_bucket,count", _rows((latencies.edges, latencies.counts))),
        f"{trim}.num_worst{kept}.worst": _csv(
            "latency,prets,postts,encode",
            (
                f"{packet.latency},{packet.ingress_ns},{packet.egress_ns},"
                f"{packet.key if as_hex else _hex(packet.key)}"
                for packet in worst
            ),
        ),
        f"{bucket}.jitterpre": _csv(
            "bucket,count", _rows((gaps["ingress"].edges, gaps["ingress"].counts))
        ),
        f"{bucket}.jitterpost": _csv(
            "bucket,count", _rows((gaps["egress"].edges, gaps["egress"].counts))
        ),
        f"{trim}.packetratepre": _csv("ts,count", _rows(rates["ingress"])),
        f"{trim}.packetratepost": _csv("ts,count", _rows(rates["egress"])),
        f"{trim}.stats": _csv(
            "pre_received,post_received,pre_received_trimmed,post_received_trimmed",
            [_stats(evaluation.counts)],
        ),
        f"{trim}.transferrate": _csv(
            "pre_received,post_received,transferrate,pre_pkts_per_second,post_pkts_per_second",
            [_transfer_rate(evaluation)],
        ),
    }


def _folders(runs: Sequence[Run]) -> list[str]:
    """A folder for each run, as in the published trees: one for all rates and repeats."""
    paths = [
        "/".join(slugify(v) or "-" for k, v in run.variables.items() if k != "traffic.rate")
        for run in runs
    ]
    places = [(path, run.rate, run.repeat) for path, run in zip(paths, runs, strict=True)]
    if len(set(places)) < len(places):
        return [run.slug for run in runs]
    return paths


def _csv(header: str, rows: Iterable[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


def _rows(pair: Pair) -> Iterator[str]:
    columns: tuple[Column, Column] = pair
    return (f"{left},{right}" for left, right in zip(*(c.tolist() for c in columns), strict=True))


def _hex(key: str) -> str:
    """A key that is a number, as the hexadecimal digits of at least 32 bits."""
    return f"{int(key):08x}" if key.isdecimal() else key


def _percentiles(evaluation: Evaluation) -> Iterator[str]:
    for row in evaluation.percentiles(papers()):
        rest = 1 - Decimal(repr(row.p))
        yield f"{row.p!r},{row.value},{divide(Decimal(1), rest)}"


def _trimmed(counts: Counts) -> tuple[int, int]:
    return counts.ingress - counts.trimmed_ingress, counts.egress - counts.trimmed_egress


def _stats(counts: Counts) -> str:
    pre, post = _trimmed(counts)
    return f"{counts.ingress},{counts.egress},{pre},{post}"


def _transfer_rate(evaluation: Evaluation) -> str:
    pre, post = _trimmed(evaluation.counts)
    means = (
        divide(Decimal(int(packets.sum())), Decimal(len(packets)))
        for packets in (evaluation.rates(side)[1] for side in SIDES)
    )
    return ",".join([str(pre), str(post), divide(Decimal(post), Decimal(pre)), *means])


def divide(dividend: Decimal, divisor: Decimal) -> str:
    """`dividend / divisor` as PostgreSQL prints the quotient of two numerics.

    At least 16 significant digits, and no fewer decimals than either operand shows:
    `select_div_scale` in PostgreSQL's `src/backend/utils/adt/numeric.c`.
    Decimals of the operands count, trailing zeros too. `divisor` is not zero.
    """
    weight, first = _leading(dividend)
    other_weight, other_first = _leading(divisor)
    quotient_weight = weight - other_weight - (1 if first <= other_first else 0)
    scale = max(
        SIGNIFICANT_DIGITS - quotient_weight * DIGITS, _decimals(dividend), _decimals(divisor), 0
    )
    exact = Context(prec=1000, rounding=ROUND_HALF_UP)
    quotient = exact.divide(dividend, divisor)
    return format(exact.quantize(quotient, Decimal(1).scaleb(-scale)), "f")


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)


def _leading(number: Decimal) -> tuple[int, int]:
    """Place and value of the first digit of base 10,000; of zero both are 0."""
    if not number:
        return 0, 0
    weight = number.adjusted() // DIGITS
    return weight, int(abs(number).scaleb(-weight * DIGITS))
