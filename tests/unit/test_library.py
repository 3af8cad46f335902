"""What `import tailtap` offers besides evaluating; the locks hold all that is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from captures import pcap
from comparisons import write_run
from exchanges import dns
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sites import write_experiment
from traced import write_two_causes

import tailtap
from tailtap import library
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.text import time_text
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


def test_a_result_is_a_few_lines_in_a_shell_and_tables_in_a_notebook(
    results: tuple[Path, Path], tmp_path: Path
) -> None:
    runs = read_runs(results[0])
    asked = [(10**9 + number * 700, dns(number == 0, 1, "a.example")) for number in range(2)]
    (tmp_path / "waits.pcap").write_bytes(pcap(asked))
    drawn = (runs, runs.runs[0], runs.runs[0].stored, replace(runs.runs[0].stored, key="<b>"))
    others: tuple[Any, ...] = (
        tailtap.verdict(results[0], "p99 < 1 s"), tailtap.compare(results, 0.99),
        tailtap.evaluate_transactions(tmp_path / "waits.pcap"),
        tailtap.judge_change(*results, worse_than=0.5, percentile=0.99),
        *tailtap.explain(write_two_causes(tmp_path / "traced")),
    )  # fmt: skip
    for found in (*drawn, *others):
        assert repr(found).count("\n") < 3 and 20 < len(repr(found)) < 1_000
        html = found._repr_html_()
        assert "<table" in html and "<b>" not in html
        assert ("data:image/svg+xml" in html) is (found in drawn)
    p99 = runs.runs[0].percentile(0.99)
    assert p99 is not None and time_text(p99.value) in repr(runs.runs[0])


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


ROOT = Path(__file__).parents[2]
OF_PYTHON = {"pip", "setuptools"}
"""What an environment holds from its start."""


LOCKS = ("requirements.lock", "requirements-dev.lock")
"""What a user installs, and what the tests do."""


def locked(lock: str) -> dict[str, tuple[str, str]]:
    """The version of each package, and what stands behind it."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    rows = (re.match(r"(\S+)==(\S+)(.*)", line) for line in text.splitlines())
    return {canonicalize_name(row[1]): (row[2], row[3]) for row in rows if row}


def test_every_package_has_its_hashes_and_no_address() -> None:
    for lock in LOCKS:
        rows = locked(lock)
        assert len(rows) > 30
        assert all("--hash=sha256:" in rest for _, rest in rows.values())
        assert "://" not in (ROOT / lock).read_text()


def test_tests_have_what_users_have() -> None:
    users, tests = map(locked, LOCKS)
    assert len(users) < 50
    assert {name: row[0] for name, row in users.items()}.items() <= {
        name: row[0] for name, row in tests.items()
    }.items()


def test_it_fits_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for lock, extra in zip(LOCKS, (extras["build"], extras["dev"]), strict=True):
        rows = locked(lock)
        for text in (*project["dependencies"], *extra):
            asked = Requirement(text)
            version, _ = rows[canonicalize_name(asked.name)]
            assert asked.specifier.contains(version), text


def test_nothing_else_is_installed() -> None:
    rows = locked("requirements-dev.lock")
    for one in distributions():
        name = canonicalize_name(one.metadata["Name"])
        if name not in OF_PYTHON and name != "tailtap":
            assert rows[name][0] == one.version, name


def test_the_page_of_licences_is_that_of_what_is_locked() -> None:
    command = [sys.executable, str(ROOT / "scripts/licences.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (ROOT / "docs/reference/licences.md").read_text(), "make docs"
