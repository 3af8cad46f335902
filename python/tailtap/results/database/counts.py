"""The rows of `counts`: what was counted of a run, by window of time, CPU and counter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailtap.records.run import RunRecord


def count_rows(run: RunRecord) -> Iterator[dict[str, object]]:
    """A row for each counter of the scope and of each CPU; less the run's number."""
    tap = (run.taps or {}).get("ingress")
    packets = None if tap is None else tap.known.came
    for name, window in (run.counters or {}).items():
        came = packets if name == "run" else None
        told: list[tuple[int | None, Mapping[str, int | None], Mapping[str, int]]]
        told = [(None, window.events, window.kinds)]
        told += [
            (int(cpu), events, window.kinds_by_cpu.get(cpu, {}))
            for cpu, events in window.by_cpu.items()
        ]
        for cpu, events, kinds in told:
            for asked, counts in ((True, events), (False, kinds)):
                for counter, count in counts.items():
                    yield {
                        "during": name, "scope": window.scope, "cpu": cpu, "counter": counter,
                        "asked": asked, "count": count,
                        "estimated": counter in window.estimated,
                        "elapsed_ns": window.elapsed_ns, "packets": came,
                    }  # fmt: skip
