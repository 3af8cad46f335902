"""Captures that another process is still writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from captures import compressed, frame, mscap, pcap, pcapng, stamps

from tailtap.analysis import evaluation
from tailtap.base.errors import InputError

PACKETS = 20_000
IDS = range(PACKETS)
START = 10**9
WRITER = """
import sys
source, target, first, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = open(source, "rb").read()
with open(target, "wb", buffering=0) as file:
    file.write(data[:first])
    print("begun", flush=True)
    for at in range(first, len(data), step):
        sys.stdin.readline()
        file.write(data[at : at + step])
        print("written", flush=True)
sys.stdin.read()
"""
"""Writes a file piece by piece, as capture programs do: one for each line that it reads.

It prints a line after each piece, and ends when nothing more can come.
"""


def capture(kind: str, delay: int) -> tuple[bytes, int, int]:
    """A capture, the bytes before its first record, and those of each record."""
    times = [(START + 10_000 * i + delay, i) for i in IDS]
    # Payloads that do not compress to nothing.
    frames = ((t, frame(i) + (i * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8)) for t, i in times)
    match kind:
        case "mscap":
            return mscap(times), 0, 12
        case "stamps":
            return stamps(times, closed=False), 64, 16
        case "pcapng":
            return pcapng(frames), 28 + 32, 32 + 68
        case _:
            return compressed(pcap(frames), kind), 24, 16 + 68


@pytest.mark.parametrize("kind", ["pcap", "pcapng", "mscap", "stamps", "zstd", "gzip"])
def test_a_capture_is_evaluated_while_it_is_written(tmp_path: Path, kind: str) -> None:
    data, header, record = capture(kind, 700)
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "in.mscap").write_bytes(mscap((START + 10_000 * i, i) for i in IDS))
    # Every piece of a plain capture ends five bytes into a record.
    step = record * (len(data) // record // 25)
    arguments = [tmp_path / "whole", tmp_path / "out.mscap", header + step + 5, step]
    command = [sys.executable, "-c", WRITER, *map(str, arguments)]
    seen: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin and writer.stdout
        while writer.stdout.readline():
            # It writes one more piece while this is evaluated.
            writer.stdin.write("\n")
            writer.stdin.flush()
            try:
                found = evaluation.evaluate(tmp_path / "in.mscap", tmp_path / "out.mscap")
            except InputError as error:
                # There is no whole block to decompress.
                assert not seen, error
                continue
            assert found.counts.lost == 0
            if found.counts.outside_ingress == 0:
                break  # The last piece has just been written.
            codes = {warning.code for warning in found.warnings}
            assert codes & {"capture-damaged", "capture-growing"}, found.warnings
            assert found.counts.matched + found.counts.outside_ingress == PACKETS
            seen.append(found.counts.matched)
            assert "outside-common-time" in codes
    assert writer.returncode == 0
    assert len(seen) >= 2 and seen == sorted(seen)
    found = evaluation.evaluate(tmp_path / "in.mscap", tmp_path / "out.mscap")
    assert found.counts.matched == PACKETS
    expected = {"tap-unclosed"} if kind == "stamps" else set()
    assert {warning.code for warning in found.warnings} == expected
