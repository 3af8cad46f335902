"""`tailtap evaluate --by flow --filter`: what the screen, the JSON and the page say of a rule that
drops all packets of one flow."""

from __future__ import annotations

import ctypes.util
import json
import struct
from pathlib import Path

import pytest
from captures import frame, pcap
from program import one_line_error, tailtap

from tailtap.show.report import write_report

START, SPORT = 1_700_000_000_000_000_000, slice(34, 36)
SEEN = "342 of 342 packets of flow udp 10.0.0.1:1003 > 10.1.0.1:53 are lost; no other flow lost one"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Captures of ten flows before and after a device with a rule against the fourth."""
    packets = []
    for number in range(3_420):
        made = bytearray(frame(number))
        made[SPORT] = struct.pack(">H", 1_000 + number % 10)
        packets.append((START + number * 50_000, bytes(made)))
    kept = [(at + 20_000, made) for i, (at, made) in enumerate(packets) if i % 10 != 3]
    (tmp_path / "in.pcap").write_bytes(pcap(packets))
    (tmp_path / "out.pcap").write_bytes(pcap(kept))
    return tmp_path / "in.pcap", tmp_path / "out.pcap"


def test_a_rule_against_a_flow_is_seen_everywhere(pair: tuple[Path, Path], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run = tailtap("evaluate", *map(str, pair), "--by", "flow", "--out", str(kept))
    assert run.returncode == 0, run.stderr
    assert f"lost: {SEEN}\n" in run.stdout
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith("udp 10.0.0.1:")]
    assert rows[0] == ["udp", "10.0.0.1:1003", ">", "10.1.0.1:53", "342", "342"]
    assert len(rows) == 10 and {tuple(row[4:6]) for row in rows[1:]} == {("342", "0")}
    stored = json.loads((kept / "evaluation.json").read_bytes())
    assert [(one["kind"], one["text"]) for one in stored["loss_patterns"]] == [("flow", SEEN)]
    page = write_report(kept, figures=False).page.read_text("utf-8").replace("&gt;", ">")
    assert 'id="by-flow"' in page and f"{SEEN}." in page
    assert "<b>heavy-loss</b>" in page and "overload" not in page and "traffic.rate" not in page


@pytest.mark.skipif(ctypes.util.find_library("pcap") is None, reason="filters need libpcap")
def test_a_filter_takes_flows(pair: tuple[Path, Path]) -> None:
    run = tailtap("evaluate", *map(str, pair), "--filter", "src portrange 1000-1002", "--json")
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)["counts"]
    assert (counts["ingress"], counts["lost"]) == (1_026, 0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--filter-after", "udp", "--match", "transactions"], "of the second capture: give two"),
        (["--filter", "udp prot 5"], "syntax error"),
    ],
)
def test_mistakes_are_told(pair: tuple[Path, Path], words: list[str], why: str) -> None:
    assert why in one_line_error(tailtap("evaluate", str(pair[0]), *words), 2)
