"""What `import tailtap` offers besides evaluating: the commands as functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from comparisons import write_run
from sites import write_experiment

import tailtap
from tailtap import library
from tailtap.base.errors import InputError, MachineError

FUNCTIONS = (
    "compare", "explain", "judge_change", "publish", "reproduce", "run", "search", "verdict",
)  # fmt: skip
EXPERIMENT = {
    "name": "described",
    "dut": {"platform": "wire", "forwarder": "tc-mirred", "cpus": [0]},
    "traffic": {"rate": "10 kpkt/s", "size": "64 B", "duration": "1 s", "cpu": 0},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("library")
    for number, scale in enumerate((1.0, 4.0)):
        for repeat in range(1, 7):
            write_run(folder / f"{scale}", 10 * number + repeat, {"dut.platform": "vm"},
                      packets=2_000, repeat=repeat, scale=scale)  # fmt: skip
    return folder / "1.0", folder / "4.0"


def test_they_are_offered_and_loaded_when_asked_for() -> None:
    assert set(FUNCTIONS) <= set(tailtap.__all__)
    for name in FUNCTIONS:
        assert getattr(tailtap, name) is getattr(library, name)
    heavy = ("numpy", "pytest", "yaml", "tailtap.library")
    code = f"import sys, tailtap; print([n for n in {heavy} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_results_are_judged_and_compared(results: tuple[Path, Path]) -> None:
    base, slow = results
    assert tailtap.verdict(base, "p99 < 1 s").answer == "holds"
    assert tailtap.verdict(str(base), ["p99 < 1 s", "max < 1 us"]).answer == "violated"
    assert tailtap.judge_change(base, slow, worse_than=0.5, percentile=0.99).answer == "worse"
    assert tailtap.judge_change(slow, base, worse_than=0.5, percentile=0.99).answer == "better"
    [load] = tailtap.compare({"old": base, "new": [slow]}, 0.99).loads
    assert [one.label for one in load.configurations] == ["old · vm", "new · vm"]
    assert tailtap.compare([base, slow], 0.99).loads[0].comparisons[0].significant


def test_a_site_is_made_and_repeated(tmp_path: Path) -> None:
    experiment, site = tmp_path / "experiment", tmp_path / "site"
    write_experiment(experiment)
    made = tailtap.publish(experiment, site, captures="embed")
    assert made.folder == str(site)
    assert "hostnames" in {row.kind for row in made.site.redacted}
    found = tailtap.reproduce(site, "captures")
    assert [step.answer for step in found.steps] == ["reproduced", "reproduced"]
    (site / "index.html").unlink()
    assert tailtap.reproduce(f"file://{site}", "checksums").answer == "contradicted"
    url = "https://example.org/captures"
    listed = tailtap.publish(experiment, captures=f"refer={url}", allow=["macs"], check=True).site
    assert listed.allowed == ["macs"]
    assert listed.captures[0].url == f"{url}/{listed.captures[0].path}"
    for wrong in (
        {"captures": "ftp"},
        {"captures": "refer=file:///x"},
        {"allow": ["names"]},
        {"licence": "none such"},
    ):
        with pytest.raises(InputError):
            tailtap.publish(experiment, check=True, **wrong)


def test_what_must_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mistakes in a mapping are told as in a file; without root nothing is made."""
    with pytest.raises(InputError, match=r"experiment\.yaml"):
        tailtap.run({**EXPERIMENT, "repeats": 3}, tmp_path / "out")
    with pytest.raises(InputError, match="no method"):
        tailtap.search(EXPERIMENT, tmp_path / "out", low=1, high=2, method="guess")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="root"):
        tailtap.run(EXPERIMENT, tmp_path / "out")
    with pytest.raises(MachineError, match="root"):
        tailtap.search(EXPERIMENT, tmp_path / "out", low=1_000, high=20_000)
    with pytest.raises(MachineError, match="root"):
        tailtap.reproduce(tmp_path, "small")
    with pytest.raises(InputError):
        tailtap.explain(tmp_path)
    assert not (tmp_path / "out").exists()
