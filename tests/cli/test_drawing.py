"""`tailtap run --check` draws the networks of the runs, each once."""

from __future__ import annotations

from pathlib import Path

from program import tailtap

NETWORK = """
name: network
dut:
  forwarder: kernel-route
  cpus: [1]
  irq: none
  nodes: {fw: {forwarder: tc-mirred}, r: {count: 3}}
  links: [in - fw - r1 - r2 - out, fw - r3 - out]
  flows:
    a: {path: [in, fw, r1, r2, out], rate: 10 kpkt/s}
    b: {path: [in, fw, r3, out]}
traffic: {rate: 1 kpkt/s}
vary: {dut.route_by: [address, port]}
"""
LINES = "name: lines\ndut: {cpus: [1]}\ntraffic: {}\nvary: {dut.line: [1, 2, 64]}\n"


def drawn(tmp_path: Path, text: str) -> list[list[str]]:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return [line.split() for line in tailtap("run", str(path), "--check").stdout.splitlines()]


def test_a_network_has_its_nodes_and_flows(tmp_path: Path) -> None:
    said = drawn(tmp_path, NETWORK)
    assert said.count(["network", "of", "001-address-a", "and", "1", "more:"]) == 1
    assert ["fw", "bare-metal", "tc-mirred", "1", "in,", "r1,", "r3"] in said
    assert ["r2", "bare-metal", "kernel-route", "1", "r1,", "out"] in said
    assert ["a", "10", "kpkt/s", "in", "-", "fw", "-", "r1", "-", "r2", "-", "out"] in said
    assert ["b", "1", "kpkt/s", "in", "-", "fw", "-", "r3", "-", "out"] in said


def test_a_line_is_one_line(tmp_path: Path) -> None:
    said = drawn(tmp_path, LINES)
    assert ["002-2:", "in", "-", "dut1", "-", "dut2", "-", "out"] in said
    assert ["003-64:", "in", "-", "dut1", "-", "dut2", "-", "…", "-", "dut64", "-", "out"] in said
    assert not any(words[:1] == ["001-1:"] for words in said)
