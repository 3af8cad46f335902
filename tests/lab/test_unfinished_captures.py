"""Captures of real taps that still run, or whose disk is full, are evaluated up to their end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from captures import compressed, frame, mscap, pcap, pcapng, stamps
from labtools import PATIENCE_SECONDS, small_disk, wait_for
from namespaces import TAILTAP, Namespace

from tailtap.analysis import evaluation

ROOM = 256 << 10
"""Bytes that find room on the small disk."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, ROOM) as disk:
        yield disk


def evaluate(ingress: Path, egress: Path) -> tuple[dict[str, int], dict[str, list[str]]]:
    """What became of the packets, and the messages of the warnings by code."""
    found = evaluation.evaluate(ingress, egress)
    messages: dict[str, list[str]] = {}
    for warning in found.warnings:
        messages.setdefault(warning.code, []).append(warning.message)
    return msgspec.structs.asdict(found.counts), messages


def generate(namespace: Namespace, *options: str) -> subprocess.Popen[bytes]:
    command = namespace.inside(TAILTAP, "generate", "gen", *options, "--json")
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def test_the_files_of_a_running_tap(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("gen", "in")
    namespace.veth("out", "far")
    tap = namespace.start(
        *("tap", "ingress=in:out", "egress=far:drop", "--records", "8192"),
        *("--write", f"{tmp_path}/{{link}}.stamps"),
    )
    generator = generate(namespace, "--rate", "20 kpkt/s", "--duration", "1 h")
    files = (tmp_path / "ingress.stamps", tmp_path / "egress.stamps")
    try:
        wait_for(lambda: all(file.stat().st_size > 100_000 for file in files), "stamps")
        early, messages = evaluate(*files)
        assert generator.poll() is None
    finally:
        generator.kill()
        generator.wait()
    assert len(messages["tap-unclosed"]) == 2
    assert early["matched"] > 5000
    assert early["matched"] + early["outside_ingress"] == early["ingress"]
    links = tap.stop()["links"]
    counts, messages = evaluate(*files)
    assert "tap-unclosed" not in messages and "capture-growing" not in messages
    assert counts["ingress"] == links["ingress"]["stored"] > early["ingress"]


@pytest.mark.parametrize("options", [[], ["-P"]])
def test_the_file_of_dumpcap_whose_disk_is_full(
    namespace: Namespace, tmp_path: Path, disk: Path, options: list[str]
) -> None:
    namespace.veth("gen", "in")
    before, after = tmp_path / "in.mscap", disk / "out.pcap"
    dumpcap = subprocess.Popen(
        namespace.inside("dumpcap", "-q", "-i", "in", "-w", str(after), *options),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(after.exists, "dumpcap")
        start = time.time_ns()
        sent = generate(namespace, "--rate", "20 kpkt/s", "--count", "10000")
        assert sent.wait(PATIENCE_SECONDS) == 0
        _, err = dumpcap.communicate(timeout=PATIENCE_SECONDS)
    finally:
        dumpcap.kill()
        dumpcap.communicate()
    assert "full" in err or "space" in err, err
    # Packets leave at their time or later.
    before.write_bytes(mscap((start - 10**8 + 50_000 * i, i) for i in range(10_000)))
    counts, messages = evaluate(before, after)
    assert 2000 < counts["matched"] == counts["egress"] < 4000
    (message,) = messages["capture-damaged"]
    assert "ends in mid-record" in message


@pytest.mark.parametrize("kind", ["pcap", "pcapng", "mscap", "stamps", "zstd", "gzip"])
def test_any_capture_whose_disk_is_full(tmp_path: Path, disk: Path, kind: str) -> None:
    times = [(10**9 + 10_000 * i, i) for i in range(50_000)]
    late = [(t + 700, i) for t, i in times]
    # Payloads that do not compress to nothing.
    frames = [(t, frame(i) + (i * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8)) for t, i in late]
    data = {
        "pcap": lambda: pcap(frames),
        "pcapng": lambda: pcapng(frames),
        "mscap": lambda: mscap(late),
        "stamps": lambda: stamps(late, closed=False),
        "zstd": lambda: compressed(pcap(frames), "zstd"),
        "gzip": lambda: compressed(pcap(frames), "gzip"),
    }[kind]()
    before, after = tmp_path / "in.mscap", disk / "out.mscap"
    before.write_bytes(mscap(times))
    with after.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while data:
            data = data[file.write(data) :]
    assert after.stat().st_size == ROOM
    counts, messages = evaluate(before, after)
    assert counts["matched"] > 2000
    assert counts["matched"] + counts["outside_ingress"] == 50_000
    (message,) = messages["tap-unclosed" if kind == "stamps" else "capture-damaged"]
    assert "what stands before that was evaluated" in message or kind == "stamps"
    assert "outside-common-time" in messages
