"""What generators, taps and tracers may still do once all that they need is open."""

from __future__ import annotations

import subprocess
from pathlib import Path

from labtools import wait_for
from namespaces import TAILTAP, Namespace
from traces import events

NET_ADMIN, DAC_OVERRIDE, SYSLOG, PERFMON, BPF = 12, 1, 34, 38, 39
"""Bits of capabilities(7)."""
NOBODY = "65534"


def status_of(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the kernel says of the thread that does the work, once its privileges are given up."""
    found: list[dict[str, str]] = []

    def look() -> bool:
        for folder in Path(f"/proc/{process.pid}/task").iterdir():
            rows = (folder / "status").read_text().splitlines()
            fields = {
                name: value.strip() for name, _, value in (row.partition(":") for row in rows)
            }
            if fields["Name"] == "tt-datapath" and fields["NoNewPrivs"] == "1":
                found.append(fields)
        return bool(found)

    wait_for(look, "a thread without privileges")
    return found[0]


def capabilities(status: dict[str, str]) -> set[int]:
    word = int(status["CapEff"], 16)
    assert status["CapPrm"] == status["CapEff"]
    return {bit for bit in range(64) if word >> bit & 1}


def test_threads_that_work_keep_what_they_need(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("gen", "in")
    tap = namespace.start("tap", "link=in:drop", "--write", str(tmp_path / "{link}.stamps"))
    trace = namespace.start("trace", "--cpus", "0", "--out", str(tmp_path / "trace"))
    words = ("generate", "gen", "--rate", "1 kpkt/s", "--duration", "20 s", "--quiet")
    with subprocess.Popen(namespace.inside(TAILTAP, *words), text=True) as generator:
        status = status_of(generator)
        assert capabilities(status) == {NET_ADMIN}
        assert set(status["Uid"].split() + status["Gid"].split()) == {NOBODY}
        assert status["Groups"] == ""
        status = status_of(trace.process)
        assert capabilities(status) == {SYSLOG, PERFMON, BPF}
        assert set(status["Uid"].split()) == {NOBODY}
        status = status_of(tap.process)
        assert capabilities(status) == {DAC_OVERRIDE, NET_ADMIN, PERFMON, BPF}
        generator.terminate()
    links = tap.stop()["links"]
    assert links["link"]["stored"] > 0
    trace.stop()
    assert len(events(tmp_path / "trace")) > 0
