"""Claims held against runs: held, not shown, contradicted, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparisons import sample
from experiment_folders import write_run

from tailtap.analysis.claims.judge import claims_at, claims_of, judge_claims, with_claims
from tailtap.analysis.claims.model import Claim
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.errors import InputError
from tailtap.records.verdict import ClaimRow


def claim(**more: Any) -> Claim:
    about = {"for": {"dut.platform": "new"}, "against": {"dut.platform": "base"}, "at": "p99.9"}
    return Claim.model_validate({"says": "It is so.", **about, "is": "no worse", **more})


def runs(label: str, latencies: list[float], **more: Any) -> list[Run]:
    known = {"more": {"variables": {"dut.platform": label}}}
    return [sample(label, n, one, **{**known, **more}) for n, one in enumerate(latencies, 1)]


def judged(new: list[Run], base: list[Run], **more: Any) -> ClaimRow:
    (row,) = judge_claims(Experiment("made-up", Path(), (*new, *base)), [claim(**more)])
    return row


BASE = [1000.0, 1010, 1020, 1030, 1040]


def test_what_shows_nothing() -> None:
    base = runs("base", BASE)
    for new, held_against, says in (
        (runs("new", BASE[:2]), runs("base", BASE[:2]), "so few can never show it"),
        (runs("new", BASE, supported=False), base, "fewer than ten packets lie above p99.9"),
        (runs("new", BASE), [], "no such run was planned to hold it against"),
        ([], base, "no such run was planned here"),
    ):
        row = judged(new, held_against, by="5 %")
        assert row.answer == "not shown" and says in row.reason
    unlike = {"variables": {"dut.platform": "new"}, "valid": False}
    row = judged(runs("new", BASE, more=unlike), base, by="5 %")
    assert row.answer == "not shown" and "left out: " in row.reason
    assert row.evidence[0].runs == 0


def test_other_values_are_equal() -> None:
    """Runs at two rates are held against those of their own rate; one wrong pair contradicts."""
    every = [
        run
        for rate, factor in (("1 kpkt/s", 1.0), ("2 kpkt/s", 3.0))
        for label, more in (("base", 1.0), ("new", factor))
        for run in runs(label, [more * one * (1 + 9 * (rate[0] == "2")) for one in BASE],
                        more={"variables": {"dut.platform": label, "traffic.rate": rate}})
    ]  # fmt: skip
    (row,) = judge_claims(Experiment("made-up", Path(), tuple(every)), [claim(by="10 %")])
    assert [one.answer for one in row.evidence] == ["held", "contradicted"]
    assert row.answer == "contradicted" and "(1 of 2 alike)" in row.reason
    # Three against three contradict one claim, and no claim of two rates.
    few = tuple(run for run in every if run.repeat <= 3)
    (row,) = judge_claims(Experiment("made-up", Path(), few), [claim(by="10 %")])
    assert [one.answer for one in row.evidence] == ["held", "not shown"]
    one = claim(by="10 %", **{"for": {"dut.platform": "new", "traffic.rate": "1 kpkt/s"}})
    assert judge_claims(Experiment("made-up", Path(), tuple(every)), [one])[0].answer == "held"


def test_a_case_stands_for_its_values() -> None:
    """Runs are held against another case whose values all differ, at their own rate."""
    every = [
        run
        for rate in ("1 kpkt/s", "2 kpkt/s")
        for case, boot, factor in (("base", "", 1.0), ("new", "idle=poll", 0.5))
        for run in runs(case, [factor * one * float(rate[0]) for one in BASE],
                        more={"variables": {"case": case, "dut.boot": boot, "traffic.rate": rate}})
    ]  # fmt: skip
    one = claim(**{"for": {"case": "new"}, "against": {"case": "base"}, "is": "better"})
    (row,) = judge_claims(Experiment("made-up", Path(), tuple(every)), [one])
    assert [found.answer for found in row.evidence] == ["held", "held"]


FILE = """\
name: of-a-folder
claims:
  - {says: Below 10 ms., for: {dut.platform: wire}, require: [p99 < 10 ms]}
  - {says: Below 1 us., require: [max < 1 us]}
  - {says: Almost never late., require: [p99.9999 < 10 ms]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("claims")
    for number in (1, 2):
        write_run(made, number, {"dut.platform": "wire"}, repeat=number)
    (made / "experiment.yaml").write_text(FILE)
    return made


def test_requirements_are_those_of_verdict(folder: Path) -> None:
    rows = claims_at([folder])
    assert [row.answer for row in rows] == ["held", "contradicted", "not shown"]
    assert [row.id for row in rows] == ["claim-1", "claim-2", "claim-3"]
    assert rows[0].test == "wire: p99 < 10 ms" and not rows[0].compares
    assert rows[1].evidence[0].runs == 2
    # Runs without the others say nothing of the experiment's claims.
    assert claims_at([next(folder.glob("runs/*"))]) == []


def test_a_verdict_with_claims_has_the_worst_answer(folder: Path) -> None:
    from tailtap import verdict

    found = verdict(folder)
    assert (found.answer, found.verdicts, len(found.claims)) == ("violated", [], 3)
    assert with_claims(found, found.claims[:1]).answer == "holds"
    assert verdict(folder, "p99 < 10 ms").claims == []


def test_a_file_that_was_changed(folder: Path, tmp_path: Path) -> None:
    for text, says in (
        (FILE.replace("require: [max", "requires: [max"), r"4: claims\[1\].requires: unknown key"),
        ("claims: 3\n", "1: claims: write a list of claims"),
    ):
        (tmp_path / "experiment.yaml").write_text(text)
        with pytest.raises(InputError, match=f"experiment.yaml:{says}"):
            claims_of(tmp_path)
