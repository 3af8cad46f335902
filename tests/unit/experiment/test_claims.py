"""Claims of experiment files: what is accepted, and the line of each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_files import check, complaint

TEXT = """\
name: claims
dut: {cpus: [1]}
traffic: {rate: 10 kpkt/s, duration: 2 s, cpu: 0}
vary: {dut.platform: [wire, bare-metal, container]}
claims:
  - says: A container is no later than bare metal.
    for: {dut.platform: container}
    against: {dut.platform: bare-metal}
    at: p99.9
    is: no worse
    by: 5 %
  - {id: quick, says: It is quick., for: {dut.platform: container}, require: ["p99.9 < 1 ms"]}
scales:
  fast: {vary.traffic.rate: [1 Mpkt/s]}
"""


def test_both_forms(tmp_path: Path) -> None:
    checked = check(tmp_path, TEXT)
    compared, required = checked.claims
    assert compared.others == {"dut.platform": "bare-metal"} and compared.margin == 0.05
    assert required.id == "quick" and required.require == ["p99.9 < 1 ms"]
    assert "claims" not in checked.combinations[0][1].parameters()
    # What is written of it is read again.
    written = checked.combinations[0][1].document()["claims"]
    assert written[0]["for"] == {"dut.platform": "container"} and written[0]["is"] == "no worse"


def test_what_a_scale_has_may_be_claimed(tmp_path: Path) -> None:
    text = TEXT.replace("for: {dut.platform: container}\n", "for: {traffic.rate: 1 Mpkt/s}\n")
    assert check(tmp_path, text).claims[0].chosen == {"traffic.rate": "1 Mpkt/s"}
    assert check(tmp_path, text, "vary.dut.platform=[wire]").claims


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{dut.platform: container}\n", "{dut.platfrm: container}\n",
         "e.yaml:7: claims[0].for.dut.platfrm: this key does not vary: did you mean"),
        ("bare-metal}", "vm}",
         "e.yaml:8: claims[0].against.dut.platform: 'vm' is none of the values of this key: wire"),
        ("against: {dut.platform: bare-metal}", "against: {dut.platform: container}",
         "e.yaml:8: claims[0].against: these are the runs that it is about"),
        ("at: p99.9", "at: p999", "e.yaml:9: claims[0].at: 'p999' is no percentile"),
        ("    at: p99.9\n", "", "e.yaml:8: claims[0].against: at is missing"),
        ("no worse", "wrose", "e.yaml:10: claims[0].is: 'wrose' is wrong, wanted: 'better'"),
        ("    by: 5 %\n", "", "e.yaml:10: claims[0].is: no worse needs a share: write by: 5 %"),
        ("5 %", "0 %", "e.yaml:11: claims[0].by: leave it out instead of 0 %"),
        ("no worse\n    by: 5 %", "better\n    by: 100 %", "e.yaml:11: claims[0].by: nothing is"),
        ('["p99.9 < 1 ms"]', '["p99.9 < 1"]', "e.yaml:12: claims[1].require[0]: 'p99.9 < 1'"),
        (', require: ["p99.9 < 1 ms"]', "", "e.yaml:12: claims[1].says: a claim has one test"),
        (', require: ["p99.9 < 1 ms"]', ', require: [loss == 0], by: 5 %',
         "e.yaml:12: claims[1].by: this belongs to against"),
        ("id: quick", "id: claim-1", "e.yaml:12: claims[1].id: claim-1 is claimed twice"),
        ("id: quick", "idd: quick", "e.yaml:12: claims[1].idd: unknown key: did you mean 'id'"),
        ("{vary.traffic.rate: [1 Mpkt/s]}", "{claims: []}",
         "e.yaml:14: scales.fast.claims: a scale cannot set claims"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    assert said in complaint(tmp_path, TEXT.replace(old, new))
