"""From folders to pages: what is read, what is refused, and what the page says."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from experiment_folders import LISTED, traffic, write_evaluation, write_experiment, write_run
from made_records import wiring
from pages import texts, visible

from tailtap.analysis.runs.groups import configurations, finding, floor_of, listed
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.runs.text import time_text
from tailtap.base.errors import InputError, NotWritten
from tailtap.cli.program import program
from tailtap.host.cpu.cpus import Numa
from tailtap.lab.topology.graph import Node
from tailtap.lab.topology.graphs import network, smallest
from tailtap.lab.topology.placement import Placed, Placement, facts
from tailtap.show.report import write_report
from tailtap.show.report.figures import hdr
from tailtap.show.report.readings import taps
from tailtap.show.report.tables import environment_facts, summary, warning_rows
from tailtap.show.sections import COUNT, Column, row, table

EVIL = "<img src=x onerror=alert(1)>$\\frac{{{</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs, with 5000 worst packets each, and a failed one."""
    return write_experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return write_report(folder, figures=False).page.read_text("utf-8")


def payload(page: str) -> dict[str, Any]:
    packed = re.search(r'id="payload">([^<]*)<', page)
    assert packed
    value: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return value


def test_ten_runs_fit_in_two_megabytes(folder: Path, page: str) -> None:
    assert len(load_experiment(folder).finished) == 10
    assert all(
        run.evaluation is not None and run.evaluation.worst_latency.size == 5000
        for run in load_experiment(folder).finished
    )
    assert len(page.encode()) < 2_000_000


class Loads(HTMLParser):
    """Addresses of whatever a browser fetches on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "srcset", "data", "poster") + (("href",) if tag != "a" else ())
        self.addresses += [value or "" for name, value in attrs if name in names]


def test_the_page_loads_nothing(page: str) -> None:
    loads = Loads()
    loads.feed(page)
    assert loads.addresses == ["data:,"]  # the icon, so that none is asked for
    assert not re.search(r"@import|@font-face|url\(|https?://", page)


def test_runs_that_differ_in_their_repeat_alone_are_one_configuration(folder: Path) -> None:
    groups = configurations(load_experiment(folder))
    assert [(g.label, len(g.members), g.wire) for g in groups] == [
        ("wire · 10 kpkt/s", 2, True),
        ("wire · 50 kpkt/s", 2, True),
        ("bare-metal · 10 kpkt/s", 3, False),
        ("bare-metal · 50 kpkt/s", 3, False),
    ]
    assert [m.index for g in groups for m in g.members] == list(range(10))
    assert len({g.light for g in groups}) == 4


def test_the_floor_is_the_wire_at_the_same_rate(folder: Path) -> None:
    groups = configurations(load_experiment(folder))
    floors = [floor_of(group, groups) for group in groups]
    assert [floor and floor.label for floor in floors] == [
        None,
        None,
        "wire · 10 kpkt/s",
        "wire · 50 kpkt/s",
    ]
    rows = summary(groups).parts[2].rows
    assert [row.look == "floor" for row in rows] == [False, False, False, True]


def test_the_worst_repeat_is_chosen_by_the_highest_percentile_all_support(folder: Path) -> None:
    for group in configurations(load_experiment(folder)):
        assert group.common_percentile == 0.999  # 20 000 packets: ten above p99.95
        values = []
        for member in group.members:
            row = listed(member.evaluation, 0.999)
            assert row
            values.append(row.value)
        assert group.worst is group.members[values.index(max(values))]


def test_a_finding_names_percentile_maximum_loss_and_floor(folder: Path) -> None:
    groups = configurations(load_experiment(folder))
    sentence = finding(groups[2], groups).sentence.replace("\u00a0", " ").replace("\u202f", " ")
    assert re.fullmatch(
        r"99\.9 % of the packets took at most \S+ .s in the worst of 3 repeats "
        r"\(\S+ .s in the best\); the slowest took \S+ .s; "
        r"36 of 60 000 were lost \(0\.06 %\)\. Floor \(wire\): \S+ .s\.",
        sentence,
    )
    assert "none was lost" in finding(groups[0], groups).sentence


@pytest.fixture
def partly_invalid(tmp_path: Path) -> Path:
    """Three repeats, of which the second and slowest is invalid, and one invalid run alone."""
    slow = {"dut.platform": "bare-metal", "traffic.rate": "10 kpkt/s"}
    for repeat in (1, 2, 3):
        # It has fewer packets, too: what it does not support does not matter to the others.
        write_run(tmp_path, repeat, slow, repeat=repeat, packets=4_000 if repeat == 2 else 20_000,
                  achieved=7_000.0 if repeat == 2 else None)  # fmt: skip
    write_run(tmp_path, 4, {"dut.platform": "wire", "traffic.rate": "10 kpkt/s"}, achieved=5_000.0)
    return tmp_path


def test_an_invalid_run_leads_nothing(partly_invalid: Path) -> None:
    groups = configurations(load_experiment(partly_invalid))
    repeats, alone = groups
    assert repeats.common_percentile == 0.999
    values = {
        member.run.repeat: row.value
        for member in repeats.members
        if (row := listed(member.evaluation, 0.999))
    }
    assert values[2] > max(values[1], values[3])
    worst = 1 if values[1] > values[3] else 3
    assert repeats.worst is not None and repeats.worst.run.repeat == worst
    told = finding(repeats, groups)
    assert told.value == time_text(values[worst])
    assert "in the worst of 2 valid repeats" in told.sentence
    assert "1 of 3 repeats is invalid and left out: it was not the load" in told.sentence
    assert time_text(repeats.members[1].evaluation.maximum or 0) not in told.sentence
    # Where nothing is valid there is no number, and the wire is no floor.
    assert alone.worst is None and floor_of(repeats, groups) is None
    told = finding(alone, groups)
    assert (told.value, told.name) == ("invalid", "no result")
    assert not re.search(r"\d", told.sentence)


def test_a_figure_with_room_for_one_repeat_prefers_valid_ones(partly_invalid: Path) -> None:
    repeats, alone = configurations(load_experiment(partly_invalid))
    first, second, third = repeats.members
    assert repeats.example(repeats.members) is repeats.worst
    assert repeats.example([second, third]) is third and repeats.example([first, second]) is first
    assert repeats.example([second]) is second
    assert alone.example(alone.members) is alone.members[0]
    assert repeats.example([]) is None


def test_an_invalid_run_says_so_wherever_its_number_stands(partly_invalid: Path) -> None:
    groups = configurations(load_experiment(partly_invalid))
    rows, [lonely] = (part.rows for part in summary(groups).parts)
    assert [row.look == "invalid" for row in rows] == [False, True, False]
    assert [row.look for row in rows].count("worst") == 1
    page = write_report(partly_invalid, figures=False).page.read_text("utf-8")
    labels = [run["label"] for run in payload(page)["runs"]]
    assert [label.endswith(" (invalid)") for label in labels] == [False, True, False, True]
    assert [row.cells[0].value for row in (*rows, lonely)] == labels
    [legend] = re.findall(r'<div class="legend".*?</div>\n<p', page, re.S)
    assert legend.count("invalid</i>") == 1 and "10 kpkt/s (invalid)" in legend
    assert "wire · 10 kpkt/s (invalid)" in {entry.label for entry in hdr(groups).legend}


def test_percentiles_without_support_are_marked(folder: Path, page: str) -> None:
    groups = configurations(load_experiment(folder))
    cells = summary(groups).rows[0].cells[3 : 3 + len(LISTED)]
    assert [cell.look == "unsupported" for cell in cells] == [p > 0.9995 for p in LISTED]
    assert "fewer than ten packets lie above" in page


def test_warnings_are_told_once_with_their_runs(folder: Path) -> None:
    experiment = load_experiment(folder)
    rows = warning_rows(experiment, configurations(experiment))
    assert [(row.code, row.runs) for row in rows] == [
        ("steal", "every run with a result"),
        ("slip", "bare-metal · 50 kpkt/s #1"),
    ]


def test_the_page_does_not_begin_with_what_puts_no_number_in_doubt(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path)
    path = next((folder / "runs").glob("*wire*")) / "run.json"
    run = json.loads(path.read_text())
    run["warnings"] = [{"code": "no-device", "message": "not traced"}]
    path.write_text(json.dumps(run))
    page = write_report(folder, figures=False).page.read_text("utf-8")
    first, further = page.index('<h2 id="warnings">'), page.index('<h2 id="notes">')
    assert first < page.index('<h2 id="counts">') < further < page.index("<b>no-device</b>")
    assert page.count("<b>no-device</b>") == 1


def test_failed_runs_are_listed_with_their_reason(page: str) -> None:
    text = visible(page)
    assert "1 without a result" in text
    assert "lxc-start is not installed: apt install lxc" in text


def test_lost_stamps_and_slip_are_in_the_table(folder: Path) -> None:
    [cells, *_] = texts(taps(configurations(load_experiment(folder))))
    # Nothing was lost before the device, and all packets could be sent.
    assert cells[1:10] == [
        "20 500", "20 500", "500", "20 500", "20 488", "12", "500", "af_xdp, generic", "20 000",
    ]  # fmt: skip
    assert "812.345 µs" in cells


def test_facts_that_differ_name_their_runs(folder: Path) -> None:
    facts = environment_facts(load_experiment(folder))
    [release] = [fact for fact in facts["kernel"] if fact.name == "release"]
    assert release.values == (("", "6.18.5"),)
    [platform] = [fact for fact in facts["dut"] if fact.name == "platform"]
    assert [value for _, value in platform.values] == ["wire", "bare-metal", "container"]


def test_the_page_says_how_the_run_was_wired(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"})
    [path] = tmp_path.glob("runs/*/run.json")
    content = json.loads(path.read_text())
    assert "wiring" not in environment_facts(load_experiment(tmp_path))
    # The environment has a topology, too: that of the processors.
    content["environment"] = {"topology": {"cores": ["0-1"]}}
    path.write_text(json.dumps(content | wiring(smallest("namespace", (1, 2)))))
    told = environment_facts(load_experiment(tmp_path))["wiring"]
    assert {fact.name: fact.values[0][1] for fact in told} == {
        "node gen": "generator, namespace",
        "node tap": "timestamper, namespace",
        "node dut": "dut, namespace, CPUs 1, 2, irq core, by softirq",
        "links": "gen:tt-gen – tap:tt-a0, tap:tt-a1 – dut:tt-in, dut:tt-out – tap:tt-b0",
        "flow forward": "gen:tt-gen → tap:tt-a0 (tap) → tap:tt-a1 → dut:tt-in → dut:tt-out → "
        "tap:tt-b0 (tap)",
    }


def test_the_wiring_of_a_flow_is_its_own(tmp_path: Path) -> None:
    nodes = [Node(name, "dut") for name in ("fw", "r1", "r2")]
    graph = network(nodes, {"a": ["fw", "r1"], "b": ["fw", "r2"]})
    run = write_run(tmp_path, 1, {"flow": "b"})
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(content | wiring(graph)))
    told = {
        fact.name: fact.values[0][1]
        for fact in environment_facts(load_experiment(tmp_path))["wiring"]
    }
    assert "flow a" not in told
    assert told["flow b"].endswith(
        "fw:tt-in2 → fw:to-r2 → r2:to-fw → r2:tt-out2 → tap:tt-b0-2 (tap)"
    )
    assert told["links"] == (
        "gen:tt-gen2 – tap:tt-a0-2, tap:tt-a1-2 – fw:tt-in2, r2:tt-out2 – tap:tt-b0-2, "
        "fw:to-r2 – r2:to-fw"
    )
    assert told["links of other flows"] == "4"
    assert {"node fw", "node r1", "node r2"} <= set(told)


def test_the_page_says_where_packets_were_received_and_what_crossed_nodes(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.irq": "node"})
    [path] = tmp_path.glob("runs/*/run.json")
    placed = Placed((1,), {"tt-in": "ens1", "tt-out": "ens2"}, {"tt-in": (6, 7)})
    numa = Numa((0, 1, 6, 7), {0: (0, 1), 1: (6, 7)}, {"ens1": 1, "ens2": 0})
    interrupt = {"port": "tt-in", "cpus": [], "handled": {"6": 12, "7": 3}}
    more = {"placement": facts("dut", placed, numa), "card_interrupts": {"45": interrupt}}
    graph = smallest("namespace", (1,), placement=Placement("node", napi="threads", queues=1))
    path.write_text(json.dumps(json.loads(path.read_text()) | wiring(graph) | more))
    rows = environment_facts(load_experiment(tmp_path))["wiring"]
    told = {fact.name: fact.values[0][1] for fact in rows}
    assert told["node dut"] == "dut, namespace, CPUs 1, irq node, by threads, 1 queues"
    assert told["port tt-in"] == "card ens1, NUMA node 1, received on CPUs 6, 7"
    assert told["port tt-out"] == "card ens2, NUMA node 0"
    assert told["NUMA crossing 1"].startswith("the card ens1 (tt-in) is on NUMA node 1")
    assert told["NUMA crossing 2"].startswith("the cards ens1 (tt-in) and ens2 (tt-out)")
    assert told["interrupt 45 of tt-in"] == "CPU 6: 12, CPU 7: 3"


def test_a_variable_without_a_value_says_what_there_is_not(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.neighbours": {}, "dut.irq": "none"})
    write_run(tmp_path, 2, {"dut.neighbours": {"x": {"cpu": {"cpus": [1]}}}, "dut.irq": "none"})
    page = write_report(tmp_path, figures=False).page.read_text("utf-8")
    assert [run["label"] for run in payload(page)["runs"]] == [
        "no neighbours · irq none",
        "x (cpu (cpus [1])) · irq none",
    ]


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    warning = [{"code": EVIL, "message": EVIL}]
    write_run(tmp_path, 1, {"dut.platform": "wire", "x": EVIL}, name=EVIL, warnings=warning)
    write_run(tmp_path, 2, {"x": EVIL}, status="failed", error=EVIL, name=EVIL)
    page = write_report(tmp_path, figures=True).page.read_text("utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 3
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 6
    assert payload(page)["runs"][0]["label"] == f"wire · {EVIL}"


def test_a_bare_evaluation_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "l2fwd"
    write_evaluation(folder, traffic("bare-metal", 10_000, 3_000, 1), [])
    report = write_report(folder, tmp_path / "out", figures=False)
    assert report.page == tmp_path / "out" / "index.html"
    assert (report.runs, report.failed) == (1, 0)
    text = visible(report.page.read_text("utf-8"))
    assert "l2fwd" in text
    assert "What taps and generator say" not in text


def test_a_single_run_folder_is_reported(folder: Path, tmp_path: Path) -> None:
    run = next(path for path in sorted(folder.glob("runs/*")))
    assert write_report(run, tmp_path, figures=False).runs == 1


def test_few_packets_have_a_page_too(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_evaluation(folder, traffic("wire", 10_000, 100, 1), [])
    for packets in ("distribution", "histogram", "worst", "gaps", "rates"):
        assert (folder / f"{packets}.parquet").exists()
    assert write_report(folder, figures=True).runs == 1


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_an_unfinished_run_fails_and_the_others_are_reported(tmp_path: Path, status: str) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=2_000)
    write_run(tmp_path, 2, {"dut.platform": "wire"}, repeat=2, status=status)
    experiment = load_experiment(tmp_path)
    assert [run.number for run in experiment.finished] == [1]
    [failed] = experiment.failed
    assert failed.failure


@pytest.mark.parametrize(
    "damage", ["run.json", "evaluation/evaluation.json", "evaluation/gaps.parquet"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]", None])
def test_a_damaged_run_is_listed_and_does_not_stop_the_report(
    tmp_path: Path, damage: str, content: bytes | None
) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=2_000)
    run = write_run(tmp_path, 2, {"dut.platform": "wire"}, repeat=2, packets=2_000)
    if content is not None:
        (run / damage).write_bytes(content)
    elif damage != "run.json":
        (run / damage).unlink()
    else:
        (run / damage).write_text('{"status": "done", "taps": 3, "warnings": {"a": 1}}')
    experiment = load_experiment(tmp_path)
    assert len(experiment.finished) == 1
    [failed] = experiment.failed
    assert failed.failure
    assert "\n" not in failed.failure


def test_a_folder_without_an_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs in it"):
        load_experiment(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        load_experiment(tmp_path / "missing")


def test_an_experiment_without_a_finished_run_is_refused_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {}, status="failed", error="no root")
    with pytest.raises(InputError, match=r"no finished run.*no root"):
        load_experiment(tmp_path)


def test_reports_are_the_same_for_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    write_run(folder, 1, {"dut.platform": "wire"}, packets=2_000)
    for name in ("a", "b"):
        write_report(folder, tmp_path / name)
    figures = sorted(path.name for path in (tmp_path / "a" / "figures").iterdir())
    assert figures == sorted(
        f"{name}.{kind}"
        for name in ("hdr", "worst", "gaps", "latency", "rates")
        for kind in ("pdf", "png", "svg")
    )
    for name in figures:
        first, second = ((tmp_path / side / "figures" / name).read_bytes() for side in "ab")
        assert first == second, name
    pdf = (tmp_path / "a" / "figures" / "hdr.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf


def test_the_command_prints_the_page_or_an_object(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    out = ["--out", str(tmp_path), "--no-figures"]
    plain = runner.invoke(program, ["report", str(folder), *out])
    assert plain.stdout == f"{tmp_path / 'index.html'}\n"
    assert "reading" in plain.stderr
    result = runner.invoke(program, ["report", str(folder), *out, "--json", "--quiet"])
    assert result.stderr == ""
    told = json.loads(result.stdout)
    assert told["bytes"] == (tmp_path / "index.html").stat().st_size
    assert (told["runs"], told["failed"], told["figures"]) == (10, 1, [])
    assert not (tmp_path / "figures").exists()


def test_a_place_that_cannot_be_written_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritten, match="cannot write the report: File exists"):
        write_report(folder, tmp_path / "file", figures=False)


def test_columns_that_say_the_same_of_every_run_are_left_out() -> None:
    columns = [Column("run"), *(Column(name, COUNT, group=group)
                                for group, name in zip("xxyyz", "abcde", strict=True))]  # fmt: skip
    whole = table("", columns, [row("a", 0, 7, 0, None, 0), row("b", 0, 8, 0, None, None)])
    shown = whole.without(0, None)
    assert [column.name for column in shown.columns] == ["run", "x b", "z e"]
    assert shown.groups == [("x", 1), ("z", 1)]
    assert shown.left_out == "Zero in every run: x a, y c. Not known of any run: y d."
    assert texts(shown) == [["a", "7", "0"], ["b", "8", "–"]]
    nothing = table("", columns, [row("a", 0, 0, 0, 0, 0)])
    assert len(nothing.without(0, None, keep=3).columns) == 3
