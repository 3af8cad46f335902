"""Requirements, how often verdicts are wrong, and what many runs answer together."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from experiment_folders import write_experiment, write_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from made_records import rewrite
from published_trees import write_mixed
from scipy import stats

from tailtap.analysis.verdict import shares
from tailtap.analysis.verdict.junit import write_junit
from tailtap.analysis.verdict.requirement import (
    PROFILES,
    QUANTITIES,
    parse_requirement,
    parse_requirements,
    profile,
)
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.analysis.verdict.shares import design_effect, judge, lower, needed, upper
from tailtap.base.errors import InputError, MachineError

REQUIRE = 'name: load\nrequire: ["p99 < 1 ms", profile urllc-5g]\n'


def required(*texts: str) -> Any:
    return parse_requirements(texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs in four configurations, and a failed one."""
    return write_experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_an_invalid_run_shows_nothing(copy: Path) -> None:
    slip = [{"code": "generator-slip", "message": "1 % of the packets left late"}]
    rewrite(copy / "runs/001-wire-10000-1/run.json", valid=False, warnings=slip)
    (row,) = judge_runs([copy], required("median < 1 s"), runs=["wire, 10 kpkt/s"]).verdicts
    assert [one.answer for one in row.runs] == ["not shown", "holds"]
    assert row.decided_by == "001-wire-10000-1"
    assert row.reason.startswith("the run is invalid (generator-slip): ")


def test_runs_that_were_planned_and_never_made_show_nothing(copy: Path) -> None:
    variables = {"dut.platform": "wire", "traffic.rate": "10 kpkt/s"}
    row = {"repeat": 3, "parameters": {"traffic": {"rate": 10_000}}, "variables": variables}
    rows = [{"number": n, "slug": f"{n:03}-wire", **row} for n in (1, 12)]
    (copy / "plan.json").write_text(json.dumps({"name": "made", "runs": rows}))
    (found,) = judge_runs([copy], required("median < 1 s"), runs=["wire, 10 kpkt/s"]).verdicts
    assert [one.answer for one in found.runs] == ["holds", "holds", "not shown"]
    assert found.decided_by == "012-wire" and "never made" in found.reason
    # One run alone is judged alone.
    one = copy / "runs/001-wire-10000-1"
    assert judge_runs([one], required("median < 1 s")).answer == "holds"


def test_run_folders_of_one_experiment_are_repeats(folder: Path, copy: Path) -> None:
    runs = [folder / "runs/001-wire-10000-1", folder / "runs/002-wire-10000-2"]
    (row,) = judge_runs([*runs, runs[0]], required("median < 1 s")).verdicts
    assert len(row.runs) == 2
    both = judge_runs([runs[0], copy / "runs/001-wire-10000-1"], required("median < 1 s"))
    assert [len(row.runs) for row in both.verdicts] == [1, 1]


def test_bare_evaluations_are_no_repeats_of_one_another(folder: Path) -> None:
    paths = [folder / f"runs/00{n}-wire-10000-{n}/evaluation" for n in (1, 2)]
    found = judge_runs(paths, required("median < 1 s", "return_level(1 s) < 1 s"))
    assert [len(row.runs) for row in found.verdicts] == [1, 1, 1, 1]
    assert found.verdicts[0].answer == "holds"


def test_what_the_experiment_file_requires(copy: Path) -> None:
    with pytest.raises(InputError, match="nothing is required: give --require"):
        judge_runs([copy])
    (copy / "experiment.yaml").write_text(REQUIRE)
    for path in (copy, copy / "runs/001-wire-10000-1"):
        found = judge_runs([path])
        texts = {row.requirement for row in found.verdicts}
        assert texts == {"p99 < 1 ms", "reliability(1 ms) >= 99.999 %"}
    # The command line takes its place.
    found = judge_runs([copy], required("loss == 0"))
    assert {row.requirement for row in found.verdicts} == {"loss == 0"}
    (copy / "experiment.yaml").write_text('name: load\nrequire: ["p99 < 1"]\n')
    with pytest.raises(InputError, match=r"experiment.yaml:2: require: 'p99 < 1': 1 has no unit"):
        judge_runs([copy])


def test_imported_runs_are_judged_when_asked_for(tmp_path: Path) -> None:
    mixed = write_mixed(tmp_path)
    own = judge_runs([mixed], required("median < 1 s"))
    assert [row.configuration for row in own.verdicts] == ["wire", "bare-metal"]
    texts = ("median < 1 s", "p99.9 < 10 ms", "mean < 1 s", "return_level(1 h) < 1 s")
    found = judge_runs([mixed], required(*texts), runs=["imported"])
    answers: dict[str, dict[str, str]] = {}
    for row in found.verdicts:
        name = row.configuration.split(" ")[0]
        answers.setdefault(name, {})[row.requirement] = row.answer
        assert row.answer == "holds" or row.reason
    assert [answers["whole"][text] for text in texts] == ["holds", "holds", *["not shown"] * 2]
    assert answers["uncounted"]["median < 1 s"] == "not shown"
    assert answers["worst"]["mean < 1 s"] == "not shown"


def test_imported_runs_are_judged_like_their_originals(tmp_path: Path) -> None:
    """What published percentiles bound never contradicts what all packets say."""
    mixed = write_mixed(tmp_path)
    limits = ("5 us", "10 us", "100 us", "500 us", "1 ms")
    wanted = required(*(f"p{p} < {limit}" for p in (50, 99, 99.9) for limit in limits))
    own = judge_runs([mixed], wanted, runs=["own, bare-metal"])
    imported = judge_runs([mixed], wanted, runs=["imported, whole"])
    pairs = [(a.answer, b.answer) for a, b in zip(own.verdicts, imported.verdicts, strict=True)]
    assert all(two in (one, "not shown") for one, two in pairs)
    assert {"holds", "violated"} <= {two for _, two in pairs}


def test_junit(folder: Path, tmp_path: Path) -> None:
    wanted = required("p99 < 1 s", "loss == 0", "profile urllc-5g")
    found = judge_runs([folder], wanted, runs=["10 kpkt/s"])
    for allowed in (False, True):
        file = tmp_path / "verdict.xml"
        write_junit(found, file, allow_not_shown=allowed)
        root = ElementTree.parse(file).getroot()
        cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
        assert len(cases) == len(found.verdicts) == 9
        listed = [row.answer for row in found.verdicts]
        no, unshown = listed.count("violated"), listed.count("not shown")
        assert no and unshown
        assert int(root.get("failures", "")) == (no if allowed else no + unshown)
        assert int(root.get("skipped", "")) == (unshown if allowed else 0)
        suites = [suite.get("name") for suite in root.iter("testsuite")]
        assert suites == ["wire · 10 kpkt/s", "bare-metal · 10 kpkt/s", "container · 10 kpkt/s"]
        lost = cases["bare-metal · 10 kpkt/s", "loss == 0"]
        failure = lost.find("failure")
        assert failure is not None and failure.get("type") == "violated"
        assert "12 of 20,000 packets lost" in str(failure.get("message"))
        facts = {fact.get("name"): fact.get("value") for fact in lost.iter("property")}
        assert facts["answer"] == "violated" and facts["005-bare-metal-10000-1: late"] == "12"
        JUnitXml.fromfile(str(file))
    with pytest.raises(MachineError, match="cannot write"):
        write_junit(found, tmp_path / "missing" / "verdict.xml")


def test_junit_holds_any_name(tmp_path: Path) -> None:
    write_run(tmp_path / "odd", 1, {"traffic.external": "send \x07 <&>\n"})
    file = tmp_path / "verdict.xml"
    write_junit(judge_runs([tmp_path / "odd"], required("loss == 0")), file)
    (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    assert suite.get("name") == "send \N{REPLACEMENT CHARACTER} <&>\N{REPLACEMENT CHARACTER}"


MS = 1_000_000
HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("text", "quantity", "argument", "comparator", "limit"),
    [
        ("p99.999 < 1 ms", "percentile", Fraction(99_999, 100_000), "<", MS),
        ("p50<=5us", "percentile", Fraction(1, 2), "<=", 5_000),
        ("median < 5 us", "percentile", Fraction(1, 2), "<", 5_000),
        ("  mean   <  4.312 us ", "mean", None, "<", 4_312),
        ("max < 500 us", "max", None, "<", 500_000),
        ("loss == 0", "loss", None, "==", 0),
        ("loss < 0.1 %", "loss", None, "<", Fraction(1, 1000)),
        ("loss <= 0.1ppm", "loss", None, "<=", Fraction(1, 10_000_000)),
        ("duplicates == 0", "duplicates", None, "==", 0),
        ("reordered < 1 %", "reordered", None, "<", Fraction(1, 100)),
        ("reliability(1 ms) >= 99.999 %", "reliability", MS, ">=", Fraction(99_999, 100_000)),
        ("reliability( 0.5 ms )>99 %", "reliability", MS // 2, ">", Fraction(99, 100)),
        ("return_level(24 h) < 1 ms", "return_level", 24 * HOUR, "<", MS),
        ("gap(p99.9) < 200 us", "gap", Fraction(999, 1000), "<", 200_000),
        ("gap(max) < 1 ms", "gap", 1, "<", MS),
        ("blocked(reload) < 50 ms", "blocked", None, "<", 50 * MS),
    ],
)
def test_what_is_understood(
    text: str, quantity: str, argument: object, comparator: str, limit: object
) -> None:
    found = parse_requirement(text)
    assert (found.quantity, found.argument) == (quantity, argument)
    assert (found.comparator, found.limit) == (comparator, limit)
    assert parse_requirement(found.text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "compares nothing: write a quantity, < or <=, and a limit"),
        ("p99.999", "'p99.999' compares nothing"),
        ("urllc-5g", "'urllc-5g' is a profile, not a requirement: write profile urllc-5g"),
        ("p99.999 1 ms", "compares nothing"),
        ("p99 < 1 mss", "'1 mss' is not a time"),
        ("p99 < 1", "1 has no unit: write '1 s', or take one of ns, us"),
        ("p99 <", "'' is not a time"),
        ("p99 < 0 ms", "'0 ms' must be more than nothing"),
        ("p99 < -1 ms", "'-1 ms' is not a time"),
        ("p100 < 1 ms", "'p100' is no percentile: write p and a number above 0 and below 100"),
        ("p100 < 1 ms", "; write max"),
        ("p0 < 1 ms", "'p0' is no percentile"),
        ("p9.9.9 < 1 ms", "'p9.9.9' is no percentile"),
        ("p99,9 < 1 ms", "'p99,9' is no percentile: write p and a number above 0"),
        ("P99 < 1 ms", "'P99' is no percentile"),
        ("p99 > 1 ms", "'>' does not go with p99: write < or <="),
        ("p99 =< 1 ms", "'=<' does not go with p99"),
        ("p99 == 1 ms", "'==' does not go with p99"),
        ("p99 < 1 ms < 2 ms", "'1 ms < 2 ms' is not a time"),
        ("los == 0", "there is no quantity 'los': did you mean 'loss'?"),
        (
            "throughput > 1 ms",
            "there is no quantity 'throughput': known: median, p99.999, mean, max",
        ),
        ("percentile < 1 ms", "there is no quantity 'percentile': known: median, p99.999"),
        ("< 1 ms", "there is no quantity ''"),
        ("loss < 5", "'5' is no share of packets: write a number and % or ppm, such as 0.1 %"),
        ("loss == 1 %", "== is for 0 only; write < or <="),
        ("loss < 0", "nothing is below 0; write == 0"),
        ("loss < 101 %", "'101 %' is more than all packets"),
        ("loss(1 ms) == 0", "'loss(1 ms)' is written loss"),
        ("reliability >= 99 %", "'reliability' is written reliability(1 ms)"),
        ("reliability() >= 99 %", "'' is not a time"),
        ("reliability(1 ms) < 99 %", "'<' does not go with reliability(1 ms): write >= or >"),
        ("reliability(1 ms) > 100 %", "nothing is above 100 %; write >= 100 %"),
        ("return_level(a day) < 1 ms", "'a day' is not a time"),
        ("gap(1 ms) < 1 ms", "'1 ms' is no percentile"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_requirement(text)
    message = str(caught.value)
    assert said in message and "\n" not in message
    assert message.startswith(f"'{' '.join(text.split())}'")


@given(st.text(max_size=40))
def test_any_text_is_a_requirement_or_one_line(text: str) -> None:
    try:
        found = parse_requirement(text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.quantity in QUANTITIES


@given(
    st.decimals("0.0001", "99.9999999", places=7),
    st.sampled_from(["<", "<="]),
    st.integers(1, 10**6),
    st.sampled_from(["ns", "us", "ms", "s"]),
)
def test_percentiles_are_exact(p: object, comparator: str, limit: int, unit: str) -> None:
    found = parse_requirement(f"p{p}{comparator}{limit} {unit}")
    assert found.argument == Fraction(str(p)) / 100
    assert found.limit.denominator == 1 and found.strict == (comparator == "<")


def test_profiles_are_requirements_with_a_source() -> None:
    for name, row in PROFILES.items():
        required = profile(name)
        assert required and {one.profile for one in required} == {name}
        assert row.source and all(len(text) < 200 for text in (row.source, row.reading))
    (urllc,) = profile("urllc-5g")
    assert (urllc.argument, urllc.limit) == (Fraction(MS), Fraction(99_999, 100_000))


def test_lists_of_requirements_and_profiles() -> None:
    found = parse_requirements(["loss == 0", "profile fronthaul", "loss == 0"])
    assert [one.text for one in found] == ["loss == 0", "max <= 100 us", "loss <= 0.1 ppm"]
    with pytest.raises(InputError, match=r"no profile 'urllc': did you mean 'urllc-5g'\?"):
        parse_requirements(["profile urllc"])
    with pytest.raises(InputError, match="99 is no requirement"):
        parse_requirements([99])  # type: ignore[list-item]


@given(st.integers(0, 2000), st.integers(1, 10**10), st.floats(0.5, 0.9999))
@example(999, 10**9, 0.95)  # scipy's own inverse is wrong there
def test_bounds_are_those_of_clopper_and_pearson(k: int, n: int, sure: float) -> None:
    """At the bound, as many or as few late packets are just as improbable as was asked for."""
    k = min(k, n)
    if k < n:
        assert stats.binom.cdf(k, n, upper(k, n, sure)) == pytest.approx(1 - sure, rel=1e-6)
    else:
        assert upper(k, n, sure) == 1
    if k:
        assert stats.binom.sf(k - 1, n, lower(k, n, sure)) == pytest.approx(1 - sure, rel=1e-6)
    else:
        assert lower(k, n, sure) == 0


@settings(deadline=None)
@given(
    st.integers(0, 2000),
    st.floats(1e-7, 0.5),
    st.one_of(st.just(1.0), st.floats(1, 300)),
    st.floats(0.5, 0.999),
)
@example(12, 1e-7, 1.0, 0.8436111407725688)  # a packet short, by rounding
@example(999, 1e-7, 1.0, 0.5)
def test_what_is_needed_is_enough_and_hardly_more(
    late: int, allowed: float, effect: float, sure: float
) -> None:
    n = needed(late, allowed, effect, sure)
    assert judge((late, late), n, allowed, effect, sure) == "holds"
    fewer = int(n - effect) - 1
    assert judge((late, late), fewer, allowed, effect, sure) != "holds" or late > fewer


def test_the_design_effect_of_known_bursts() -> None:
    position = np.concatenate([start + np.arange(10) for start in range(0, 1_000_000, 50_000)])
    latency = np.full(position.size, 5_000)
    assert design_effect(position, latency, 1_000_000, 4_000) == 10
    # None is late: the largest latencies tell.
    assert design_effect(position, latency, 1_000_000, 6_000) == 10
    alone = np.arange(0, 1_000_000, 5_000)
    assert design_effect(alone, np.full(alone.size, 5_000), 1_000_000, 4_000) == 1


def test_no_design_effect_of_hardly_any_packets() -> None:
    for packets in (0, 1, 5, 60):
        position = np.arange(packets)
        assert design_effect(position, np.full(packets, 7), packets, 5) == 1
        assert design_effect(position, np.full(packets, 7), packets, 9) == 1


def test_what_counts_as_support_is_what_evaluations_call_so() -> None:
    for nines, packets in ((1, 100), (3, 10_000), (5, 1_000_000), (6, 10_000_000)):
        assert shares.supporting(10.0**-nines) == packets
