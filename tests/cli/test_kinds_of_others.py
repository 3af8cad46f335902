"""Kinds of another package are known everywhere, and one that does not work stops nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trial_knobs
import yaml
from experiment_folders import write_experiment
from packages import install, install_kinds
from program import TAILTAP, Finished, one_line_error, tailtap

EXPERIMENT = """\
name: others
dut: {platform: pod, cache: 3 MiB, forwarder: {relay: {lanes: 2}}, cpus: [1]}
traffic: {generator: trickle, options: {drops: 2}, cpu: 0, duration: 1 s}
tap: {kind: listener}
vary:
  dut.cache: [1 MiB, 2 MiB]
"""
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def others(packages: Path) -> Path:
    """The folder with a package that has one kind of everything."""
    install_kinds(packages)
    return packages


def check(tmp_path: Path, text: str = EXPERIMENT) -> Finished:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return tailtap("run", path, "--check", "--json", "--out", tmp_path / "out")


def module(name: str) -> str:
    """What a module of tailtap prints."""
    done = subprocess.run(
        [sys.executable, "-m", name], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def doctor() -> dict[tuple[str, str], dict[str, str]]:
    """What doctor says to a user without privileges, by area and name."""
    done = subprocess.run(
        [*UNPRIVILEGED, TAILTAP, "doctor", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return {(row["area"], row["name"]): row for row in json.loads(done.stdout)["checks"]}


def test_doctor_shows_them(others: Path) -> None:
    found = doctor()
    for area, name, text in (
        ("platforms", "pod", "pods grow here"),
        ("forwarders", "relay", "relays"),
        ("generators", "trickle", "trickles"),
        ("taps", "listener", "listens"),
        ("exporters", "lines", "lines up"),
    ):
        assert (found[area, name]["state"], found[area, name]["found"]) == ("ok", text)


def test_experiments_name_them(others: Path, tmp_path: Path) -> None:
    content = json.loads(check(tmp_path).stdout)
    assert content["problems"] == [row for row in content["problems"] if "root" in row["message"]]
    assert [run["variables"] for run in content["runs"]] == [
        {"dut.cache": "1 MiB"},
        {"dut.cache": "2 MiB"},
    ]
    for run in content["runs"]:
        assert run["problems"] == []
        assert {"message": "a relay will run: RelayOptions(lanes=2)"} in run["notes"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "lanes: 2",
            "lines: 2",
            ":2: dut.forwarder.relay.lines: unknown key: did you mean 'lanes'?",
        ),
        ("drops: 2", "drops: a", ":3: traffic.options.drops: 'a' is wrong, wanted: "),
        ("cache: 3 MiB", "cash: 3 MiB", ":2: dut.cash: unknown key: did you mean 'cache'?"),
        ("[1 MiB, 2 MiB]", "[1, 2 MiB]", ":6: vary.dut.cache[0]: 1 has no unit"),
        ("platform: pod", "platform: wire", None),
        (
            "platform: pod",
            "platform: vm",
            "platform vm does not have this key, which belongs to pod",
        ),
        ("kind: listener", "kind: listner", "there is no tap 'listner': did you mean 'listener'?"),
    ],
)
def test_a_slip_in_their_options_names_the_line(
    others: Path, tmp_path: Path, old: str, new: str, said: str | None
) -> None:
    done = check(tmp_path, EXPERIMENT.replace(old, new))
    if said is None:
        assert json.loads(done.stdout)["runs"]
    else:
        assert said in one_line_error(done, 2)


def test_the_references_have_them(others: Path) -> None:
    page = module("tailtap.experiment.reference")
    assert "### Platform pod\n\nA pod, which is a kind of container. Nobody knows" in page
    for key in (
        "- `dut.cache` (size; default `1 MiB`): How much cache the pod may use.",
        "- `dut.options.lanes` (whole number; default `1`): How many lanes it has.",
        "- `traffic.options.drops` (",
    ):
        assert key in page
    assert "- `listener`: A listener on both sides. It is all ears." in page
    kinds = module("tailtap.cli.kinds")
    for name in ("pod", "relay", "trickle", "listener", "lines"):
        assert f"`{name}` (of other-kinds)" in kinds


def test_the_schema_has_them(others: Path) -> None:
    from jsonschema import Draft7Validator

    validator = Draft7Validator(json.loads(module("tailtap.experiment.json_schema")))
    assert list(validator.iter_errors(yaml.safe_load(EXPERIMENT))) == []
    wrong = EXPERIMENT.replace("lanes: 2", "lanes: two")
    [error] = validator.iter_errors(yaml.safe_load(wrong))
    assert list(error.absolute_path) == ["dut", "forwarder"]


def test_results_are_exported(others: Path, tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "experiment", packets=1_000)
    done = tailtap("export", experiment, "--to", "lines", "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out/lines.txt").read_text().splitlines()) == 10
    unknown = tailtap("export", experiment, "--to", "line")
    assert "papers, pos, perfetto, an address" in one_line_error(unknown, 2)
    assert unknown.stderr.endswith("or lines\n")


def test_a_package_that_does_not_work_stops_nobody_else(packages: Path, tmp_path: Path) -> None:
    install(packages, "broken", {"tailtap.platforms": "torn = no_such_module:Torn"})
    install(packages, "hollow", {"tailtap.forwarders": "hollow = json:JSONEncoder"})
    install(packages, "twin", {"tailtap.generators": "af_xdp = json:JSONEncoder"})
    plain = "name: a\ntraffic: {cpu: 0}\ndut: {cpus: [1]}\n"
    assert json.loads(check(tmp_path, plain).stdout)["runs"]
    for change, said in (
        (
            ("dut: {", "dut: {platform: torn, "),
            (
                "the platform torn of the package broken cannot be used: ModuleNotFoundError: No "
                "module named 'no_such_module': repair or uninstall that package"
            ),
        ),
        (
            ("dut: {", "dut: {forwarder: hollow, "),
            (
                "the forwarder hollow of the package hollow cannot be used: it has no Options, "
                "diagnose, documentation, foresee, in_kernel, needs, routes, serves, shares_cpus, "
                "start, summary: repair or uninstall that package"
            ),
        ),
        (
            ("traffic: {", "traffic: {generator: af_xdp, "),
            (
                "there are several kinds of generator called 'af_xdp', in the packages tailtap and "
                "twin: uninstall all but one"
            ),
        ),
    ):
        error = one_line_error(check(tmp_path, plain.replace(*change)), 3)
        assert error == f"tailtap: {said}"
    found = doctor()
    for area, name in (("platforms", "torn"), ("forwarders", "hollow"), ("generators", "af_xdp")):
        assert found[area, name]["state"] == "missing"
        assert found[area, name]["remedy"] == "repair or uninstall the package"
    assert found["platforms", "wire"]["state"] == "ok"


def test_their_knobs_are_judged_like_ours(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(packages, "trial-knobs", trial_knobs.ENTRY_POINTS)
    source = Path(trial_knobs.__file__)
    (packages / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("TAILTAP_TEST_KNOBS", str(tmp_path))
    (tmp_path / "test-ends-hog").write_text("runs\n")
    done = tailtap("host", "audit", "test-ends-hog", "--json")
    [row] = json.loads(done.stdout)["rows"]
    assert (row["answer"], row["value"], row["wanted"]) == ("not-met", "runs", "stopped")
    assert done.returncode == 1
    assert doctor()["knobs", "test-ends-hog"]["state"] == "ok"


def test_a_knob_that_does_not_work_is_named_when_it_is_asked_for(packages: Path) -> None:
    install(packages, "broken", {"tailtap.knobs": "their-knob = nowhere:KNOB"})
    assert tailtap("host", "audit", "timers", "--json").returncode in (0, 1)
    message = one_line_error(tailtap("host", "audit", "their-knob"), 3)
    said = "the knob their-knob of the package broken cannot be used"
    assert said in message
    row = doctor()["knobs", "their-knob"]
    assert row["state"] == "missing"
    assert row["found"].startswith(said)
