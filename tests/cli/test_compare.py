"""`tailtap compare` as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from comparisons import write_run
from forms import fits
from program import in_process, one_line_error, tailtap
from published import PUBLISHED, needs_published
from published_trees import write_rates, write_tree


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A floor and two devices, four repeats each, one twice as slow; one run that failed."""
    folder = tmp_path_factory.mktemp("runs") / "two"
    number = 0
    for platform, scale in (("wire", 0.1), ("bare-metal", 1.0), ("container", 2.0)):
        for repeat in range(1, 5):
            number += 1
            run = write_run(folder, number, {"dut.platform": platform}, scale=scale, repeat=repeat)
            count(run, round(1_000_000 * scale) + 1000 * repeat)
    failed = write_run(folder, 13, {"dut.platform": "vm"})
    record = json.loads((failed / "run.json").read_text())
    record |= {"status": "failed", "error": "interface tt-tap0 vanished during the run"}
    (failed / "run.json").write_text(json.dumps(record))
    return folder


def count(run: Path, instructions: int) -> None:
    """Let the processors have counted."""
    record = json.loads((run / "run.json").read_text())
    window = {"scope": "dut.cpus", "cpus": [1], "elapsed_ns": 10**9, "estimated": [], "by_cpu": {}}
    events = {"instructions": instructions, "dTLB-load-misses": None}
    record["counters"] = {"run": {**window, "events": events, "kinds": {"LOC": 100}}}
    record["taps"]["ingress"] = {"seen": 900, "other": 100}
    (run / "run.json").write_text(json.dumps(record))


def test_what_was_counted_is_compared(experiment: Path) -> None:
    told = json.loads(tailtap("compare", experiment, "--json", "--quiet").stdout)
    (load,) = told["loads"]
    pairs = {row["counter"]: row for row in load["counters"]["comparisons"]}
    assert pairs["instructions"]["difference"] == pytest.approx(1000)
    assert (pairs["LOC"]["answer"], pairs["LOC"]["ratio"]) == ("not shown", 1)


def test_the_same_experiment_before_and_after(experiment: Path, tmp_path: Path) -> None:
    """Folders are configurations of their own; what was given twice counts once."""
    after = tmp_path / "after"
    shutil.copytree(experiment, after)
    run = tailtap("compare", experiment, after, experiment, "--json", "--quiet")
    (load,) = json.loads(run.stdout)["loads"]
    assert sorted(entry["label"] for entry in load["configurations"]) == [
        f"{folder} · {platform}"
        for folder in ("after", "two")
        for platform in ("bare-metal", "container")
    ]
    assert {len(entry["repeats"]) for entry in load["configurations"]} == {4}


@pytest.mark.parametrize(("order", "is_"), [((5, 9), "slower"), ((9, 5), "faster")])
def test_words_follow_the_order_that_was_given(
    experiment: Path, tmp_path: Path, order: tuple[int, int], is_: str
) -> None:
    given = []
    for name, first in zip(("before", "after"), order, strict=True):
        for number in range(first, first + 4):
            [run] = experiment.glob(f"runs/{number:03}-*/evaluation")
            shutil.copytree(run, tmp_path / f"{number}")
            given.append(f"{name}={tmp_path / str(number)}")
    [load] = json.loads(in_process("compare", *given, "--json", "--quiet").stdout)["loads"]
    [pair] = load["comparisons"]
    assert (pair["first"], pair["second"], pair["answer"]) == ("before", "after", is_)
    slower = "after" if is_ == "slower" else "before"
    assert (pair["slower"], float(pair["ratio"]) > 1) == (slower, True)
    told = float(pair["second_over_first"].split()[0].removeprefix("x"))
    assert (told > 1) == (is_ == "slower")
    shown = in_process("compare", *given, "--quiet").stdout
    [line] = [words for text in shown.splitlines() if (words := text.split())[2:3] == [is_]]
    assert line[:4] == ["after", "before", is_, pair["second_over_first"].split()[0]]


def test_what_the_experiments_require_is_what_they_are_judged_by(
    experiment: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "required"
    shutil.copytree(experiment, folder, ignore=shutil.ignore_patterns("*-r3", "*-r4"))
    file = folder / "experiment.yaml"
    for required, by, p in (
        ("[p50 < 1 ms, p90 < 1 ms, p99.99 < 1 ms, loss == 0]", "require", 0.9),
        ("[median < 1 ms, loss == 0]", "require", 0.5),
        ("[median < 1 ms, p99.999 < 1 ms]", "support", 0.999),
        ("[max < 1 ms]", "require", 1.0),
        ("['reliability(1 ms) >= 99 %']", "require", 0.99),
        ("[p99.999 < 1 ms]", "support", 0.999),
    ):
        file.write_text(f"name: a\nrequire: {required}\n")
        found = json.loads(in_process("compare", folder, "--json", "--quiet").stdout)
        [load] = found["loads"]
        assert (load["percentile"], load["percentile_by"]) == (p, by)
        said = [w["message"] for w in found["warnings"] if "p99.999 is required" in w["message"]]
        assert len(said) == (by == "support")
    file.write_text("name: a\nrequire: [p90 < 1 ms]\n")
    assert "p90 (as required)" in in_process("compare", folder, "--quiet").stdout
    words = ("compare", folder, "--percentile", "99", "--json", "--quiet")
    [load] = json.loads(in_process(*words).stdout)["loads"]
    assert (load["percentile"], load["percentile_by"]) == (0.99, "option")


def test_named_evaluations_are_repeats(experiment: Path, tmp_path: Path) -> None:
    names = {
        "old": ("005-bare-metal-r1", "006-bare-metal-r2"),
        "new": ("009-container-r1", "010-container-r2"),
    }
    given = []
    for name, slugs in names.items():
        for slug in slugs:
            shutil.copytree(experiment / "runs" / slug / "evaluation", tmp_path / slug)
            given.append(f"{name}={tmp_path / slug}")
    run = tailtap("compare", *given, "--json", "--quiet")
    assert run.returncode == 0, run
    (load,) = json.loads(run.stdout)["loads"]
    assert [(entry["label"], len(entry["repeats"])) for entry in load["configurations"]] == [
        ("old", 2),
        ("new", 2),
    ]
    assert load["configurations"][0]["rank"] == {"best": 1, "last": 2}


def test_imported_beside_own(experiment: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    shutil.copytree(experiment, both)
    tailtap("import", write_rates(tmp_path, [10_000, 50_000]), "--into", both)
    run = tailtap("compare", both, "--json", "--quiet")
    assert run.returncode == 0, run
    found = json.loads(run.stdout)
    fits(found)
    own, other = found["loads"]
    assert [entry["imported"] for entry in own["configurations"]].count(True) == 1
    assert other["reason"].endswith("is the only configuration with a good run under this load")
    assert "different-machines" in [warning["code"] for warning in found["warnings"]]


def test_published_files_without_percentiles_are_left_out(tmp_path: Path) -> None:
    _, tree = write_tree(tmp_path, packets=1_000)
    for path in tree.rglob("*percentiles*"):
        if "container" in str(path) or "bare-metal" in str(path):
            path.unlink()
    tailtap("import", tree, "--into", tmp_path / "imported", "--quiet")
    line = one_line_error(tailtap("compare", tmp_path / "imported", "--quiet"), 2)
    assert "no percentiles are published of it" in line


def test_errors_are_one_line(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "published").mkdir()
    (tmp_path / "published/latencies-pre-rate1.pcap.zst.trim_ms0.hist.csv").touch()
    one = experiment / "runs/005-bare-metal-r1"
    slow = tmp_path / "slow"
    write_run(slow, 1, {"dut.platform": "vm"}, rate=5_000)
    invalid = tmp_path / "invalid"
    write_run(invalid, 1, {"dut.platform": "vm"}, changes={"valid": False})
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path / "empty",), "no runs in it"),
        ((tmp_path / "published",), "tailtap import"),
        ((one, experiment / "runs/006-bare-metal-r2"), "only one configuration with good runs"),
        ((one, slow), "the runs are of different traffic"),
        ((invalid,), "did not send what was asked of it"),
        ((experiment / "runs/013-vm-r1",), "vanished during the run"),
        ((experiment, "--percentile", "most"), "--percentile 'most'"),
        ((experiment, "--percentile", "50,99"), "--percentile '50,99'"),
        ((experiment / "runs/001-wire-r1",), "no run of a device can be compared"),
    ]
    for arguments, message in cases:
        assert message in one_line_error(in_process("compare", "--quiet", *arguments), 2)


@needs_published
def test_the_published_data(tmp_path: Path) -> None:
    """Table 6 from data: the largest latencies of each configuration, to the nanosecond."""
    tree = PUBLISHED / "containerized-low-latency"
    assert tailtap("import", tree, "--into", tmp_path, "--quiet").returncode == 0
    run = tailtap("compare", tmp_path, "--percentile", "max", "--json", "--quiet")
    assert run.returncode == 0, run
    found = json.loads(run.stdout)
    fits(found)
    assert [load["load"] for load in found["loads"]] == ["10 kpkt/s", "1 Mpkt/s"]
    assert {len(load["configurations"]) for load in found["loads"]} == {14}
    largest = {
        (entry["label"], load["load"]): entry["repeats"][0]["latency"]
        for load in found["loads"]
        for entry in load["configurations"]
    }
    assert largest["container/vanilla/non-optimized", "1 Mpkt/s"] == 1_231_923
    assert largest["vm/rt-optimized", "1 Mpkt/s"] == 124_120
    # One repeat of each shows no difference, whatever the latencies.
    assert not any(pair["significant"] for load in found["loads"] for pair in load["comparisons"])
    aspects = {e["label"]: e["aspects"] for load in found["loads"] for e in load["configurations"]}
    assert aspects["kernel/rt-optimized"]["networking"] == "kernel space"
