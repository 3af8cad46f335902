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
from tailtap.base.units import (
    exact_rate,
    exact_time,
    format_count,
    format_share,
    format_time,
    format_us,
    format_wait,
    parse_rate,
)
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import MOST, parsed
from tailtap.records.run import RunRecord
from tailtap.records.trace import TraceRecord
from tailtap.results.database import refresh

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


def test_counts_of_others_are_no_columns(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=100)
    path = folder / "evaluation/evaluation.json"
    content = json.loads(path.read_text())
    content["counts"]["lost) SELECT 1; --"] = 5
    path.write_text(json.dumps(content))
    refresh(tmp_path)


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


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0, 2, "0"),
        (1, 2, "100 %"),
        (0.999991, 2, "99.9991 %"),
        (0.87, 2, "87 %"),
        (0.954, 2, "95.4 %"),
        (0.99999999999999999, 2, "100 %"),
        (0.5, 2, "50 %"),
        (0.00012345, 2, "0.012 %"),
        (0.00125, 3, "0.125 %"),
        (3e-8, 2, "0.000003 %"),
        (1.234, 2, "120 %"),
    ],
)
def test_a_share_has_so_many_digits_and_no_exponent(share: float, digits: int, text: str) -> None:
    assert format_share(share, digits) == text


@pytest.mark.parametrize("rate", [1, 999, 1_000, 12_345, 1_000_001, 123_456_789])
def test_a_rate_in_a_file_is_exact(rate: int) -> None:
    assert parse_rate(exact_rate(rate)) == rate


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 h"), (90_000_000_000, "90 s"), (86_400_000_000_000, "24 h"), (1_500, "1500 ns")],
)
def test_a_horizon_is_exact(ns: int, text: str) -> None:
    assert exact_time(ns) == text


def test_what_is_no_whole_number_is_rounded_where_it_is_shown() -> None:
    assert (format_time(4_311.6), format_us(4_311.6), format_us(None)) == ("4.312 us", "4.312", "")
    assert (format_wait(20), format_wait(10_000), format_wait(200_000)) == (
        "20 s",
        "2.78 h",
        "2.31 days",
    )
    assert (format_count(1, "packet"), format_count(1_000, "run")) == ("1 packet", "1,000 runs")
