"""Records of ours that strangers wrote: what is wrong is told with its file and its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiment_folders import write_run
from program import in_process
from tails import load_tail

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.runs.reader import read_runs
from tailtap.base.errors import InputError
from tailtap.base.files import read_json
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import MOST, parsed
from tailtap.records.run import RunRecord
from tailtap.records.trace import TraceRecord
from tailtap.results.database import add_run

IN_RUN: list[tuple[str, Any]] = [
    ("number", "1"),
    ("number", MOST),
    ("slug", "../../x"),
    ("slug", "/etc/x"),
    ("warnings.0", 3),
    ("generator.slip_ns.percentiles.0.p", None),
    ("taps.ingress", "many"),
    ("environment.topology.caches.0.size", True),
    ("environment.nics.0.name", None),
    ("instruments.taps.points.0.file", "../../x"),
    ("tuning.audit.a", "b"),
    ("energy.platform_watts.before", float("nan")),
    ("flows.0.path", 5),
    ("clocks.dut.at_ns.0", "now"),
]
IN_EVALUATION: list[tuple[str, Any]] = [
    ("inputs.ingress.first_ns", ""),
    ("inputs.ingress.first_ns", None),
    ("inputs.egress.last_ns", None),
    ("inputs.ingress", True),
    ("counts.matched", -1),
    ("options.bucket_ns", 0),
    ("latency_ns.mean", float("inf")),
    ("warnings.0.code", None),
    ("hops.0.counts", []),
]


def put(content: Any, path: str, value: Any) -> Any:
    """The content with a value at a path, and what is around it where it is missing."""
    key, _, rest = path.partition(".")
    inner = put(None, rest, value) if rest else value
    if key.isdecimal():
        return [inner]
    known = content if isinstance(content, dict) else {}
    return {**known, key: put(known.get(key), rest, value) if rest else value}


@pytest.mark.parametrize(("field", "value"), IN_RUN)
def test_a_run_with_a_wrong_field_is_damaged(tmp_path: Path, field: str, value: Any) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100)
    path = folder / "run.json"
    path.write_text(json.dumps(put(json.loads(path.read_text()), field, value)))
    [run] = read_runs(tmp_path).runs
    assert run.status == "damaged"
    named = f"{path}: {field.partition('.')[0]}"
    assert run.error.startswith(named)
    for command in (["report", "--no-figures"], ["model"], ["verdict", "--require", "max < 1 s"]):
        done = in_process(*command, tmp_path, "--quiet")
        assert done.returncode in (1, 2) and named in done.stdout + done.stderr


@pytest.mark.parametrize(("field", "value"), IN_EVALUATION)
def test_an_evaluation_with_a_wrong_field_is_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100) / "evaluation"
    path = folder / "evaluation.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(put(content, field, value)))
    with pytest.raises(InputError, match=field.split(".", maxsplit=1)[0]):
        Evaluation.load(folder)


def test_what_a_tail_needs_is_checked(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100) / "evaluation"
    path = folder / "evaluation.json"
    path.write_text(json.dumps(put(json.loads(path.read_text()), "blocks.width_ns", "x")))
    with pytest.raises(InputError, match=r"blocks\.width_ns: 'x' is wrong"):
        load_tail(folder, "a")


def test_a_run_that_no_database_can_hold_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100)
    record = json.loads((folder / "run.json").read_text())
    del record["number"]
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"run\.json: number: this key is missing"):
        add_run(tmp_path / "results.duckdb", folder)


def test_counts_of_others_are_no_columns(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100)
    path = folder / "evaluation/evaluation.json"
    content = json.loads(path.read_text())
    content["counts"]["lost) SELECT 1; --"] = 5
    path.write_text(json.dumps(content))
    add_run(tmp_path / "results.duckdb", folder)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("count", pa.array(["a"] * 3)),
        ("count", pa.array([1, None, 2])),
        ("count", pa.array([1, -1, 2])),
        ("latency_ns", pa.array([3, 2, 1])),
        ("elsewhere", pa.array([1, 2, 3])),
    ],
)
def test_a_table_that_is_not_as_it_should_be_is_refused(
    tmp_path: Path, column: str, values: pa.Array
) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100) / "evaluation"
    whole = {"latency_ns": pa.array([1, 2, 3]), "count": pa.array([1, 1, 1])}
    if column not in whole:
        del whole["count"]
    pq.write_table(pa.table({**whole, column: values}), folder / "distribution.parquet")
    with pytest.raises(InputError, match=r"not a whole evaluation.*distribution\.parquet"):
        Evaluation.load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": "\\ud800"}', '{"a": "\\uDC00"}', "5"])
def test_what_is_no_json_of_ours_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.json: this is no ") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), "\x1b[2J", [[[]]], {}])
@pytest.mark.parametrize("kind", [RunRecord, EvaluationRecord])
def test_whatever_a_field_holds_is_shown_short(kind: Any, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        parsed("f", {"warnings": value, "number": value}, kind)
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("served", [[], [{"by": "softirq"}], [{"by": "softirq", "node": 3}], 5])
def test_a_trace_of_several_nodes_names_each(served: Any) -> None:
    content = {"cpus": [1], "started_ns": 1, "ended_ns": 2}
    parsed("f", {**content, "served": [{"by": "softirq", "node": "a"}]}, TraceRecord)
    with pytest.raises(InputError, match="served"):
        parsed("f", {**content, "served": served}, TraceRecord)
