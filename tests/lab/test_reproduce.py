"""What was measured here, published, and repeated as the page says: on the machine it is from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from program import tailtap
from read_pages import run, steps

PAGE = Path(__file__).parents[2] / "docs/howto/reproduce.md"
HELD = list(range(0, 2_000, 8))
"""Every eighth packet waits in the device for longer than a busy machine makes so many wait."""
EXPERIMENT = f"""\
name: repeated
dut: {{cpus: [1], forwarder: {{fault: {{hold: {{ids: {HELD}, time: 150 ms}}}}}}}}
traffic: {{rate: 2 kpkt/s, duration: 800 ms, warm_up: 100 ms, cpu: 0, slip_limit: 10 s}}
vary: {{dut.platform: [wire, bare-metal]}}
repeat: 3
claims:
  - {{id: adds, says: A device adds time., for: {{dut.platform: bare-metal}},
     against: {{dut.platform: wire}}, at: p95, is: worse}}
  - {{id: magic, says: It takes none., for: {{dut.platform: bare-metal}}, require: [median < 1 ns]}}
  - {{id: tail, says: Its tail is short., require: [p99.9999 < 1 s]}}
scales:
  tiny: {{traffic.duration: 400 ms}}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_published_moved_and_measured_again(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    file, archive = tmp_path / "e.yaml", tmp_path / "archive"
    made = tailtap("run", file, "--out", archive, "--quiet", timeout=240)
    assert made.returncode == 0, made.stderr
    made = tailtap(
        "publish", tmp_path / "archive", "--out", tmp_path / "made", "--quiet", timeout=240
    )
    assert made.returncode == 0, made.stderr
    (tmp_path / "made").rename(tmp_path / "site")
    typed = list(steps(PAGE.read_text()))
    here = f'sudo() {{ "$@"; }}\nPATH={sys.prefix}/bin:$PATH\n'
    captures, small = run(typed, ["bash"], tmp_path, here, {"reproduce": "--json"}, timeout=500)
    status, output = captures
    assert (status, answers(output)) == (0, {"checksums": "reproduced", "captures": "reproduced"})
    status, output = small
    assert status == 1, output
    steps_of = answers(output)
    # Its captures are elsewhere, and this command does not say where.
    assert (steps_of["captures"], steps_of["figures"]) == ("not shown", "reproduced")
    found = json.loads(output.splitlines()[-1])
    claims = {claim["id"]: claim for claim in found["claims"]}
    assert {name: claim["answer"] for name, claim in claims.items()} == {
        "adds": "reproduced",
        "magic": "contradicted",
        "tail": "not shown",
    }, claims
    assert claims["adds"]["here"]["evidence"][0]["runs"] == 3
    # It is the same machine, measured at the smallest scale.
    assert [one["what"] for one in found["differences"] if one["machine"]] == []
    run_of = json.loads(next((tmp_path / "here/runs").glob("001-*/run.json")).read_text())
    assert run_of["parameters"]["traffic"]["duration"] == 400_000_000


def answers(output: str) -> dict[str, str]:
    return {one["level"]: one["answer"] for one in json.loads(output.splitlines()[-1])["steps"]}
