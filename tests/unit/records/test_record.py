"""Records that strangers wrote, and the catalogue of warnings."""

from __future__ import annotations

import ast
import json
import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiment_folders import write_run
from hypothesis import given
from hypothesis import strategies as st
from program import in_process
from published import CAPTURES, needs_captures
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
from tailtap.records.interrupts import (
    Listing,
    parse_interrupts,
    parse_softirqs,
    read_samples,
    write_samples,
)
from tailtap.records.record import MOST, Notice, parsed
from tailtap.records.run import RunRecord
from tailtap.records.trace import TraceRecord
from tailtap.records.warnings import CATALOGUE, INVALIDATING, by_kind, is_valid, page
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
EVALUATION = "evaluation/evaluation.json"
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


def changed(folder: Path, file: str, field: str, value: Any) -> Path:
    """A file of a run with another value in a field."""
    path = write_run(folder, 1, {"dut.platform": "wire"}, packets=100) / file
    path.write_text(json.dumps(put(json.loads(path.read_text()), field, value)))
    return path


@pytest.mark.parametrize(("field", "value"), IN_RUN)
def test_a_run_with_a_wrong_field_is_damaged(tmp_path: Path, field: str, value: Any) -> None:
    path = changed(tmp_path, "run.json", field, value)
    [run] = read_runs(tmp_path).runs
    assert run.status == "damaged"
    named = f"{path}: {field.partition('.')[0]}"
    assert run.error.startswith(named)
    for command in (["report"], ["model"], ["verdict", "--require", "max < 1 s"]):
        done = in_process(*command, tmp_path, "--quiet")
        assert done.returncode in (1, 2) and named in done.stdout + done.stderr


@pytest.mark.parametrize(("field", "value"), IN_EVALUATION)
def test_an_evaluation_with_a_wrong_field_is_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    path = changed(tmp_path, EVALUATION, field, value)
    with pytest.raises(InputError, match=field.split(".", maxsplit=1)[0]):
        Evaluation.load(path.parent)


def test_what_a_tail_needs_is_checked(tmp_path: Path) -> None:
    path = changed(tmp_path, EVALUATION, "blocks.width_ns", "x")
    with pytest.raises(InputError, match=r"blocks\.width_ns: 'x' is wrong"):
        load_tail(path.parent, "a")


def test_counts_of_others_are_no_columns(tmp_path: Path) -> None:
    changed(tmp_path, EVALUATION, "counts.lost) SELECT 1; --", 5)
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


INTERRUPTS = """\
            CPU0       CPU2
  0:         12          0   IO-APIC   2-edge      timer
 54:          7          8   IR-PCI-MSI 2097152-edge      igb_uio
LOC:      41083       5153   Local timer interrupts
ERR:          3
MIS:          0
"""
SOFTIRQS = """\
                    CPU0       CPU1       CPU2
      NET_RX:          4          5          6
         RCU:          1          2          3
"""


def test_names_are_those_of_the_papers_files() -> None:
    found = parse_interrupts(INTERRUPTS)
    assert dict(zip(found.labels, found.values, strict=True)) == {
        "0_IO-APIC_2-edge_timer_CPU0": 12,
        "0_IO-APIC_2-edge_timer_CPU2": 0,
        "54_IR-PCI-MSI_2097152-edge_igb_uio_CPU0": 7,
        "54_IR-PCI-MSI_2097152-edge_igb_uio_CPU2": 8,
        "LOC_Local_timer_interrupts_CPU0": 41083,
        "LOC_Local_timer_interrupts_CPU2": 5153,
        "ERR_CPU0": 3,
        "MIS_CPU0": 0,
    }


def test_softirqs_follow_the_same_form() -> None:
    found = parse_softirqs(SOFTIRQS)
    assert found.labels[:3] == tuple(f"NET_RX_softirq_CPU{cpu}" for cpu in range(3))
    assert list(found.values) == [4, 5, 6, 1, 2, 3]


@needs_captures
def test_a_published_file_has_the_names_that_its_machine_listed() -> None:
    [path] = CAPTURES.glob("irq-*.csv")
    samples = read_samples(path)
    assert (len(samples.times_ns), len(samples.counters)) == (75, 166)
    assert samples.took_ns is None
    assert samples.times_ns[:2] == [75_000, 1_001_765_000]
    assert samples.counters["LOC_Local_timer_interrupts_CPU0"][:2] == [125233, 125483]
    # DPDK's driver took the cards after the third sample.
    assert samples.counters["54_IR-PCI-MSI_2097152-edge_igb_uio_CPU3"][:4] == [None] * 3 + [0]
    # Written again, it says the same.
    described = {name.rpartition("_CPU")[0] for name in samples.counters}
    assert "27_IR-PCI-MSI_3670017-edge_eno1-TxRx-0" in described


def listing(**values: int) -> Listing:
    lines = tuple((name, "", 1) for name in values)
    return Listing(("CPU0",), lines, array("Q", values.values()))


def test_a_counter_that_comes_later_has_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "interrupts.csv"
    looks = [[listing(A=1)], [listing(A=2, B=5)]]
    write_samples(path, [2_000_001_999, 3_000_000_000], [7, 8], looks)
    assert path.read_bytes() == (
        b"timestamp_us;monotonic_ns;took_ns;A_CPU0;B_CPU0\r\n"
        b"0;2000001999;7;1;\r\n"
        b"999998;3000000000;8;2;5\r\n"
    )
    samples = read_samples(path)
    assert samples.times_ns == [2_000_001_999, 3_000_000_000]
    assert samples.took_ns == [7, 8]
    assert samples.counters == {"A_CPU0": [1, 2], "B_CPU0": [None, 5]}


@given(
    st.lists(st.integers(1, 2**40), min_size=2, max_size=20),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
             max_size=4, unique_by=lambda name: " ".join(name.split())),
)  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], names: list[str]
) -> None:
    """Whatever a driver calls its interrupt: semicolons, quotes, other alphabets."""
    path = tmp_path_factory.mktemp("samples") / "interrupts.csv"
    times = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    lines = tuple((f"{place}", name, 1) for place, name in enumerate(names))
    looks = [[Listing(("CPU0",), lines, array("Q", [n] * len(names)))] for n in range(len(times))]
    write_samples(path, times, [1] * len(times), looks)
    samples = read_samples(path)
    assert samples.times_ns == times
    assert len(samples.counters) == len(names)
    assert all(values == list(range(len(times))) for values in samples.counters.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no column timestamp_us"),
        ("a;b\n1;2\n", "no column timestamp_us"),
        ("timestamp_us;A\n0;1\n", "1 samples; increments need two"),
        ("timestamp_us;A;A\n0;1;1\n1;1;1\n", "the column A is there twice"),
        ("timestamp_us;A\n0;1\n5;x\n", ":3: 'x' of A is no count"),
        ("timestamp_us;A\n0;1\n0;1\n", ":3: this sample is not later"),
        ("timestamp_us;A\n;1\n5;1\n", ":2: no timestamp_us"),
        ("timestamp_us;A\n0;1\n5;1;9\n", ":3: 3 cells under 2 columns"),
    ],
)
def test_what_is_no_file_of_samples_is_told(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "irq.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_samples(path)


def test_a_row_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "irq.csv"
    path.write_text("timestamp_us;A\r\n0;1\r\n5;2\r\n9")
    assert read_samples(path).counters == {"A": [1, 2]}


def test_samples_that_hang_or_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(f"timestamp_us;A\n0;1\n1;{'9' * 5000}\n")
    with pytest.raises(InputError, match=r"samples\.csv:3: .* is no count"):
        read_samples(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="no regular file"):
        read_samples(path)


ROOT = Path(__file__).parents[3]
CALLS = ("Notice", "_warning", "with_flag")
FUNCTIONS = (*CALLS, "warning")
"""Functions whose first argument is a code; as a method, the last one is that of a log."""


def codes_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", "") in FUNCTIONS
            if (called or getattr(node.func, "attr", "") in CALLS) and node.args:
                first = node.args[0]
                values = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "code"]
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def emitted() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "python").rglob("*.py"):
        found.update(dict.fromkeys(codes_of(path), path))
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        text = path.read_text("utf-8")
        found.update(dict.fromkeys(re.findall(r'(?:\bwarn\(|\bcode:)\s*"([\w-]+)"', text), path))
    return found


def test_every_code_is_explained_and_every_explanation_is_of_a_code() -> None:
    found = emitted()
    assert len(found) > 60
    codes = [entry.code for entries in CATALOGUE.values() for entry in entries]
    assert len(codes) == len(set(codes))
    unknown = {code: str(path) for code, path in found.items() if code not in codes}
    assert not unknown, "add these to records/warnings/"
    assert not set(codes) - set(found), "nothing emits these any more"


def test_only_the_load_invalidates() -> None:
    assert sorted(INVALIDATING) == ["generator-rate", "generator-slip"]
    found = [Notice(code=code, message="") for code in ("steal", "overload", "generator-slip")]
    assert is_valid(found[:2])
    assert not is_valid(found)


def test_the_page_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs/reference/warnings.md").read_text("utf-8") == page(), "run 'make docs'"
    entries = [entry for entries in CATALOGUE.values() for entry in entries]
    assert page().count("\n- `") == len(entries)


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("300 us late", "7 ms late", "300 us to 7 ms late"),
        ("p99 is from 20 to 21 ns", "p99 is from 30 to 31 ns", ""),
        ("1.json: 3 were lost", "2.json: 3 were lost", ""),
        ("3 % were lost", "3 % were lost", "3 % were lost"),
        ("base-1 lost 1,000", "base-1 lost 20", "base-1 lost 20 to 1,000"),
    ],
)  # fmt: skip
def test_warnings_of_a_kind_are_one_with_the_range_of_their_figure(
    first: str, second: str, one: str
) -> None:
    kinds = by_kind([(Notice("slip", first), "a"), (Notice("slip", second), "b")])
    shown = [(kind.message, kind.runs) for kind in kinds]
    assert shown == ([(one, ["a", "b"])] if one else [(first, ["a"]), (second, ["b"])])
