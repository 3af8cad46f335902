"""Experiment files: what is accepted, what it means, and what overrides and scales make of it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment_files import FIVE_LINES, check, complaint
from program import in_process
from scratch_machine import scratch_machine

from tailtap.base.errors import NEARLY, InputError
from tailtap.experiment.combinations import SECTIONS
from tailtap.experiment.fields import models_in
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.experiment.sections import Without, ablation, knobs_of, purpose_of
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.generators.pattern import PATTERNS, parse_pattern
from tailtap.lab.neighbours import NEIGHBOURS, too_little
from tailtap.lab.platforms import PLATFORMS
from tailtap.lab.platforms.boot import parameters_of_others
from tailtap.measure.campaign import experiment_text
from tailtap.records.run import Load, Neighbour
from tests.unit.experiment.test_refused import CLAIMS, FIGURES, written

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
EVERYTHING = """
name: everything
dut: {platform: container, forwarder: {suricata: {rules: none}}, cpus: [1, 3], memory: 1.5 GiB}
traffic:
  rate: 12.5 kpkt/s
  size: [64 B, 1500 B]
  pattern: {kind: burst, packets: 32}
  duration: 1.5 s
  warm_up_packets: 10
  pause: 3 ms
  flows: {src: 10.0.0.1-10.0.0.9, dport: 50-59}
  vlan: 5
  bidirectional: true
  reverse_cpu: 2
  slip_limit: 1 ms
evaluation: {trim: 100 us, window: 1 s}
vary: {dut.boot: [nohz=off, ""]}
"""
SHAPES = """\
name: shapes
traffic:
  size: imix
  ip: 6
  vlan: 7
  flows: {src: fd00::1-fd00::4, dport: 53}
  warm_up_packets: 1000
  pause: 1 s
vary:
  traffic.pattern:
    - constant
    - burst:packets=32
    - {kind: poisson, seed: 7}
    - "on-off:on_time=10 ms,off_time=90 ms"
    - {kind: ramp, to: 20 kpkt/s}
"""
SCALES = """\
name: scaled
traffic: {rate: 10 kpkt/s, duration: 2 s}
vary:
  traffic.flows: [1, 2]
scales:
  paper: {traffic.rate: 1 Mpkt/s, traffic.duration: 160 s, repeat: 10, differs: [the cards]}
  wide: {"vary.traffic.flows": [1, 100]}
"""


def only(folder: Path, text: str, *overrides: str) -> Experiment:
    [(_, experiment)] = check(folder, text, *overrides).combinations
    return experiment


def again(experiment: Experiment) -> Experiment:
    """What a station is sent: the experiment as a document."""
    return Experiment.model_validate(json.loads(json.dumps(experiment.document())))


def test_traffic_of_every_shape(tmp_path: Path) -> None:
    checked = check(tmp_path, SHAPES)
    traffics = [experiment.traffic for _, experiment in checked.combinations]
    assert [traffic.packets for traffic in traffics] == [
        100_000, 100_000, 100_000 + 10 * 316 + 10, 10_000, 150_000,
    ]  # fmt: skip
    first = traffics[0]
    assert sorted(set(first.sizes)) == [75, 594, 1518]
    assert (first.ranges().flows, first.warm_up, first.seconds) == (4, 0, 0.1 + 1 + 10)
    assert parse_pattern(traffics[4].pattern.text()).values(5) == ("ramp", [20_000, 5])
    poisson = checked.combinations[2][1].parameters()["traffic"]["pattern"]
    assert poisson == {"kind": "poisson", "seed": 7}


def documented() -> Iterator[Any]:
    """The experiments that pages show as a whole."""
    blocks = re.compile(r"^```yaml\n(name: .*?)^```", re.S | re.M)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, text in enumerate(blocks.findall(page.read_text())):
            yield pytest.param(text, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("text", list(documented()))
def test_experiments_in_the_documentation_are_valid(tmp_path: Path, text: str) -> None:
    assert len(check(tmp_path, text).combinations) >= 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_survive_the_way_to_a_station(path: Path) -> None:
    combinations = read_experiment(path).combinations
    assert combinations
    for _, experiment in combinations:
        there = again(experiment)
        assert there == experiment
        assert there.parameters() == experiment.parameters()
        assert there.devices() == experiment.devices()


def test_every_kind_of_quantity_survives() -> None:
    experiment = Experiment.model_validate(yaml.safe_load(EVERYTHING))
    document = experiment.document()
    assert document["traffic"]["rate"] == "12500 pkt/s"
    assert document["traffic"]["size"] == ["64 B", "1500 B"]
    assert document["traffic"]["pause"] == "3000000 ns"
    assert document["dut"]["memory"] == f"{1536 * 2**20} B"
    assert again(experiment) == experiment
    assert again(experiment).traffic.reversed() == experiment.traffic.reversed()
    faster = experiment.traffic.model_copy(update={"rate": 2_000, "duration": 500_000_000})
    changed = experiment.model_copy(update={"traffic": faster})
    assert again(changed).traffic.packets == changed.traffic.packets


def test_what_one_of_the_platforms_does_not_use_can_be_set_apart(tmp_path: Path) -> None:
    text = (
        "name: a\ntraffic: {}\ncases:\n  - {dut.platform: vm, dut.memory: 1 GiB}\n"
        "  - {dut.platform: bare-metal, dut.memory: null}\n"
    )
    assert len(check(tmp_path, text).combinations) == 2


@pytest.mark.parametrize("vary", ["{}", "{dut.platform: [wire, container]}"])
def test_where_there_is_no_device_nothing_of_it_has_a_meaning(tmp_path: Path, vary: str) -> None:
    overrides = ("dut.memory=1 GiB", "dut.kernel=rt", "dut.boot=quiet", "dut.platform=wire")
    first = check(tmp_path, FIVE_LINES, *overrides[: 3 if vary != "{}" else 4], f"vary={vary}")
    dut = first.combinations[0][1].parameters()["dut"]
    of_a_device = [dut[key] for key in ("forwarder", "memory", "kernel", "boot")]
    assert dut["platform"] == "wire" and of_a_device == [None] * 4


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("dut: {boot: audit=0}", [set()]),
        (
            "vary: {dut.boot: ['', idle=poll audit=0, audit=1]}",
            [{"idle", "audit"}, set(), {"idle"}],
        ),
        ("cases: [{dut.kernel: rt, dut.boot: ''}, {dut.kernel: rt, dut.boot: a}]", [{"a"}, set()]),
    ],
)
def test_a_run_is_without_the_boot_parameters_of_others(
    tmp_path: Path, text: str, without: list[set[str]]
) -> None:
    found = check(tmp_path, f"name: a\ntraffic: {{}}\n{text}\n").combinations
    specs = [experiment.devices()[0][1] for _, experiment in found]
    assert [parameters_of_others(one.options.boot, one.varied["boot"]) for one in specs] == without


def test_options_may_stand_with_the_forwarders_name(tmp_path: Path) -> None:
    text = (
        "name: options\ntraffic: {}\nvary:\n  dut.forwarder:\n    - tc-mirred\n"
        "    - {suricata: {rules: many}}\n    - {testpmd: {mode: mac}}\n"
    )
    experiments = [experiment for _, experiment in check(tmp_path, text).combinations]
    assert [(one.dut.forwarder, one.dut.options) for one in experiments] == [
        ("tc-mirred", {}),
        ("suricata", {"rules": "many"}),
        ("testpmd", {"mode": "mac"}),
    ]
    assert experiments[1].parameters()["dut"]["options"] == {"rules": "many"}


def test_what_is_required_claimed_or_drawn_is_no_parameter_of_a_run(tmp_path: Path) -> None:
    text = FIVE_LINES + "require: [p99.9 < 1 ms, profile urllc-5g]\n"
    checked = check(tmp_path, text)
    assert list(checked.require) == ["p99.9 < 1 ms", "profile urllc-5g"]
    assert list(check(tmp_path, text, "require=[loss == 0]").require) == ["loss == 0"]
    compared, required = check(tmp_path, CLAIMS).claims
    assert compared.others == {"dut.platform": "bare-metal"} and compared.margin == 0.05
    assert required.id == "quick" and required.require == ["p99.9 < 1 ms"]
    claimed = check(tmp_path, CLAIMS).combinations[0][1]
    # What is written of it is read again; what a scale has may be claimed.
    document = claimed.document()["claims"]
    assert document[0]["for"] == {"dut.platform": "container"} and document[0]["is"] == "no worse"
    scaled = CLAIMS.replace("for: {dut.platform: container}\n", "for: {traffic.rate: 1 Mpkt/s}\n")
    assert check(tmp_path, scaled).claims[0].chosen == {"traffic.rate": "1 Mpkt/s"}
    assert check(tmp_path, CLAIMS, "vary.dut.platform=[wire]").claims
    drawn = check(tmp_path, FIGURES).combinations[0][1]
    (figure,) = drawn.figures
    assert figure.panels is not None and figure.series is not None
    assert [along.by for along in figure.panels] == [["traffic.rate"]]
    assert figure.series.place(("bare-metal",)) < figure.series.place(("wire",))
    assert figure.axes.y.bounds(figure.made.y.quantity) == (0, 200_000)
    assert [wanted.limit for wanted in figure.required] == [1_000_000]
    assert again(drawn).figures == drawn.figures
    for experiment in (checked.combinations[0][1], claimed, drawn):
        assert not {"require", "claims", "figures"} & set(experiment.parameters())
    counted = FIGURES[: FIGURES.index("figures:")] + "figures: [{kind: counter, counter: LOC}]\n"
    assert check(tmp_path, f"{counted}interrupts: counters\n").combinations[0][1].figures


def test_overrides_go_through_the_same_checks(tmp_path: Path) -> None:
    checked = check(tmp_path, FIVE_LINES, "traffic.rate=20 kpkt/s", "dut.cpus=[0, 1]", "repeat=1")
    experiment = checked.combinations[0][1]
    assert (experiment.traffic.rate, experiment.dut.cpus) == (20_000, (0, 1))
    assert checked.repeat == 1
    varied = FIVE_LINES + "vary:\n  traffic.flows: [1, 2]\n"
    checked = check(tmp_path, varied, "vary.traffic.flows=[5, 6]")
    assert [values for values, _ in checked.combinations] == [
        {"traffic.flows": 5}, {"traffic.flows": 6}
    ]  # fmt: skip
    assert len(check(tmp_path, varied, "traffic.flows=3", "vary={}").combinations) == 1


def test_a_scale_replaces_values_before_other_overrides(tmp_path: Path) -> None:
    plain = check(tmp_path, SCALES)
    assert [e.traffic.rate for _, e in plain.combinations] == [10_000, 10_000]
    paper = check(tmp_path, SCALES, "traffic.duration=1 s", "scale=paper")
    assert {(e.traffic.rate, e.traffic.duration) for _, e in paper.combinations} == {
        (1_000_000, 1_000_000_000)
    }
    assert (paper.repeat, paper.differs) == (10, ("the cards",))
    # What is stored with the runs is the experiment at that scale, and no other.
    assert "scales" not in paper.document.data
    assert paper.document.data["traffic"]["rate"] == "1 Mpkt/s"
    wide = check(tmp_path, SCALES, "scale=wide")
    assert [e.traffic.flows for _, e in wide.combinations] == [1, 100]


LOOP = """\
packetrate: [10000, 12345, 1000000]
pkt_sz: [60, 1496]
dut.cpus: [[1], [1, 2]]
repeat: [0, 1, 2]
disablenic: [1]
"""


def test_loop_variables_of_pos_vary(tmp_path: Path) -> None:
    (tmp_path / "loop.yml").write_text(LOOP)
    text = FIVE_LINES + "loop: loop.yml\nvary: {traffic.rate: [5 kpkt/s], dut.platform: [wire]}\n"
    checked = check(tmp_path, text)
    traffic = {(one.traffic.rate, str(one.traffic.size)) for _, one in checked.combinations}
    assert traffic == {
        (rate, size) for rate in (10_000, 12_345, 1_000_000) for size in ("64", "1500")
    }
    assert len(checked.combinations) == 12 and checked.repeat == 3
    # What is stored needs no other file, and is the same experiment again.
    stored = experiment_text(checked, tmp_path / "e.yaml")
    assert stored.startswith("# e.yaml with loop written out\n")
    (tmp_path / "loop.yml").unlink()
    again = check(tmp_path, stored)
    assert [values for values, _ in again.combinations] == [one for one, _ in checked.combinations]
    # A scale goes before the file's loop, and --set before both.
    (tmp_path / "loop.yml").write_text("pkt_rate: [20000]\n")
    scaled = text + "scales: {paper: {vary.traffic.rate: [1 kpkt/s, 2 kpkt/s]}}\n"
    assert len(check(tmp_path, scaled, "scale=paper").combinations) == 2
    (other := tmp_path / "other.yml").write_text("pkt_rate: [1000, 2000, 3000]\n")
    assert len(check(tmp_path, scaled, f"loop={other}", "scale=paper").combinations) == 3
    for wrong, said in (
        ("config: [a, b]", "loop.yml:1: config: nothing here is called so: write the key path"),
        ("pkt_rate: [10000, 20000, ..., 30000]", "loop.yml:1: pkt_rate[2]: '...' is wrong"),
        ("pkt_rate: 10000", "loop.yml:1: pkt_rate: write a list of values"),
    ):
        (tmp_path / "loop.yml").write_text(wrong)
        assert said in complaint(tmp_path, text)
    (tmp_path / "loop.yml").unlink()
    assert "loop.yml: cannot read the loop variables" in complaint(tmp_path, text)


def test_packets_of_a_server_are_kept(tmp_path: Path) -> None:
    found = only(tmp_path, written())
    assert found.answers and found.snap == 512
    assert found.graph().flow("forward").answered
    parameters = found.parameters()
    assert parameters["tap"]["format"] == "pcap"
    assert parameters["traffic"]["rate"] is None
    assert parameters["evaluation"]["match"] == "transactions"
    rated = written().replace("external,", "external, rate: 5 kpkt/s,", 1)
    assert only(tmp_path, rated).parameters()["traffic"]["rate"] == 5000
    text = "name: a\ntraffic: {warm_up: 0 s}\ntap: {format: pcap, snap_length: 200 B}\n"
    found = only(tmp_path, f"{text}evaluation: {{key: packet-nat}}\n")
    assert (found.snap, found.answers) == (200, False)


EVERY = {
    "batch": {"cpu": {"cpus": [1, 0], "busy": 20}},
    "db": {"cache": {"cpus": [1], "size": "1 MiB", "period": "20 ms"}},
    "backup": {"memory": {"cpus": [0], "rate": 500}},
    "clock": {"interrupts": {"cpus": [1], "rate": 1000}},
    "tenant": {"packets": {"cpus": [1], "rate": 50_000, "burst": 16}},
}


def test_each_neighbour_says_what_it_asks_for() -> None:
    experiment = Experiment.model_validate(
        {"name": "n", "dut": {"neighbours": EVERY}, "traffic": {}}
    )
    rows = {
        one.name: (
            one.options.cpus,
            list(NEIGHBOURS[one.kind].arguments(one.options)),
            NEIGHBOURS[one.kind].asked(one.options),
        )
        for one in experiment.neighbours
    }
    assert rows == {
        "batch": ((0, 1), ["--busy", "20", "--period", "10000000 ns"], 0.2),
        "db": ((1,), ["--busy", "50", "--period", "20000000 ns", "--size", "1048576 B"], 0.5),
        "backup": ((0,), ["--per-second", "500000000"], 500_000_000),
        "clock": ((1,), ["--per-second", "1000"], 1000),
        "tenant": ((1,), ["--per-second", "50000", "--burst", "16"], 50_000),
    }
    assert experiment.parameters()["dut"]["neighbours"] == EVERY


@pytest.mark.parametrize(
    ("dut", "alone"),
    [
        ({"cpus": [1]}, [True]),
        ({"cpus": [1], "neighbours": {"batch": {"cpu": {"cpus": [0, 1]}}}}, [False]),
        ({"cpus": [1], "neighbours": {"batch": {"cpu": {"cpus": [0]}}}}, [True]),
        ({"line": 2, "cpus": [1]}, [False, False]),
        ({"line": 2, "cpus": [1, 2]}, [True, True]),
    ],
)
def test_a_node_knows_whether_it_shares_its_cpus(dut: dict[str, Any], alone: list[bool]) -> None:
    experiment = Experiment.model_validate(
        {"name": "n", "dut": {"forwarder": "kernel-route", **dut}, "traffic": {"cpu": 0}}
    )
    assert [spec.alone for _, spec in experiment.devices()] == alone


def test_what_reached_less_is_told() -> None:
    def did(asked: float, **reached: float) -> Neighbour:
        cpus = {
            cpu.removeprefix("cpu"): Load(reached=one, done=1, cpu_ns=1, elapsed_ns=1)
            for cpu, one in reached.items()
        }
        return Neighbour(kind="cpu", unit="work", asked=asked, cpus=cpus)

    [warning] = too_little({"batch": did(0.5, cpu0=0.5, cpu1=0.3), "db": did(100, cpu1=95.0)})
    assert warning.code == "neighbour-short"
    assert warning.message.endswith("batch did less than its load: 60 % on CPU 1")


RUNTIME = [knob.name for knob in KNOBS if knob.settable == "runtime" and knob.recommended]
FIRST = RUNTIME[0]
TUNED = "name: tuned\ndut: {tuning: TUNING}\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\n"


@pytest.mark.parametrize(
    ("tuning", "knobs"),
    [
        ("none", []),
        ("runtime", RUNTIME),
        ("full", RUNTIME),
        ("[]", []),
        (f"[{FIRST}]", [FIRST]),
        (f"{{without: {FIRST}}}", RUNTIME[1:]),
        (f"{{without: [{', '.join(RUNTIME)}]}}", []),
        ("{without: []}", RUNTIME),
        ("[memory]", [k.name for k in KNOBS if k.name in RUNTIME and k.group == "memory"]),
    ],
)
def test_what_a_tuning_stands_for(tmp_path: Path, tuning: str, knobs: list[str]) -> None:
    experiment = only(tmp_path, TUNED.replace("TUNING", tuning))
    assert knobs_of(experiment.dut.tuning) == knobs
    assert again(experiment).dut.tuning == experiment.dut.tuning


def test_ablation_leaves_out_each_knob_that_the_machine_does_not_meet(tmp_path: Path) -> None:
    tree = Tree(scratch_machine(tmp_path))
    values = ablation(Purpose.of(tree, "bare-metal", [1]), tree)
    left_out = [value["without"] for value in values[1:-1]]
    assert (values[0], values[-1]) == ("runtime", "none")
    assert left_out and left_out == [name for name in RUNTIME if name in left_out]
    for name in left_out:
        assert name not in knobs_of(Without(without=name))
    online = list(tree.online)  # somebody must do the housekeeping
    with pytest.raises(InputError, match="leave no other CPU"):
        purpose_of("none", online, (), tree)
    assert purpose_of("container", online[1:], (), tree).role == "container"
    assert purpose_of("machine", online[1:], (), tree).role == "vm-host"


def test_the_stored_file_has_the_knobs_written_out(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(
        TUNED.replace("{tuning: TUNING}", "{cpus: [1]}") + "vary: {dut.tuning: ablation}\n"
    )
    checked = read_experiment(path)
    values = [variables["dut.tuning"] for variables, _ in checked.combinations]
    assert values[0] == "runtime" and values[-1] == "none"
    text = experiment_text(checked, path)
    assert text.startswith("# tuned.yaml with ablation written out for this machine\n")
    path.write_text(text)
    stored = read_experiment(path)
    assert [variables["dut.tuning"] for variables, _ in stored.combinations] == values
    assert experiment_text(stored, path) == text


Json = dict[str, Any]
PATH = tuple[str, ...]
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 2**62, 1.5, float("nan"), "", "x y", "x" * 200, [], [1], ["x"], [[]], {},
    {"x": 1}, {"x": {}},
)  # fmt: skip
FOREIGN = re.compile(
    r"[Ii]nput should|valid (tuple|string|integer|dictionary|list|boolean|number)|pydantic"
    r"|[Vv]alue error|\bdict\b|\btuple\b|\bNone\b|\bTrue\b"
    r"|docs/reference/experiment\.md\)|validation"
)
"""Words of pydantic and of Python, and what is said of a kind of error that nobody translated."""
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
LEAST: Json = {"name": "a", "traffic": {}}


def places() -> Iterator[tuple[Json, PATH]]:
    """An experiment and the path of each key that an experiment can have."""
    yield from ((LEAST, (name,)) for name in Experiment.model_fields)
    for section in SECTIONS:
        [model] = models_in(Experiment.model_fields[section].annotation)
        yield from ((LEAST, (section, name)) for name in model.model_fields)
    for name, platform in PLATFORMS.working():
        on = {**LEAST, "dut": {"platform": name}}
        yield from ((on, ("dut", key)) for key in platform.Options.model_fields)
    for name, forwarder in FORWARDERS.working():
        by = {**LEAST, "dut": {"forwarder": name}}
        for key, field in forwarder.Options.model_fields.items():
            yield by, ("dut", "options", key)
            yield LEAST, ("dut", "forwarder", name, key)
            for model in models_in(field.annotation):
                yield from ((by, ("dut", "options", key, below)) for below in model.model_fields)
    for name, kind in NEIGHBOURS.items():
        at = ("dut", "neighbours", "n", name)
        yield from ((LEAST, (*at, key)) for key in kind.Options.model_fields)
    for name, pattern in PATTERNS.items():
        so = {"name": "a", "traffic": {"pattern": {"kind": name}}}
        yield from ((so, ("traffic", "pattern", key)) for key in pattern.model_fields)
    for path in (
        "traffic.flows.src", "traffic.flows.sport", "traffic.replay.file", "traffic.replay.pace",
        "traffic.external.command", "traffic.external.key", "dut.over.sriov",
        "interrupts.counters", "interrupts.counters.period", "dut.tuning.without", "scales.p",
        "dut.flows.a.rate", "dut.flows.a.path", "dut.nodes.a.cpus", "dut.nodes.a.irq",
        "dut.nodes.a.count", "dut.nodes.a.platform",
    ):  # fmt: skip
        yield LEAST, tuple(path.split("."))
    yield from ((LEAST, ("vary", key)) for key in ("traffic.rate", "dut.cpus", "dut.nodes"))


def with_value(content: Json, path: PATH, value: object) -> Json:
    changed = copy.deepcopy(content)
    inner = changed
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    return changed


def test_no_word_of_python_reaches_a_user(tmp_path: Path) -> None:
    path, said = tmp_path / "e.yaml", []
    for content, key in places():
        for value in WRONG:
            path.write_text(yaml.dump(with_value(content, key, value), Dumper=DUMPER))
            try:
                read_experiment(path)
            except InputError as error:
                said += [(key, value, line.removeprefix(str(path))) for line in error.lines]
    for key, value, line in said:
        assert re.fullmatch(r":\d+: \S.*", line), (key, value, line)
        assert FOREIGN.search(line) is None, (key, value, line)
    assert len(said) > 1500


def test_each_mistake_of_a_file_is_a_line(tmp_path: Path) -> None:
    """Four numbers without a unit: one CPU may be written so, the rest is told."""
    path = tmp_path / "bare.yaml"
    path.write_text(
        "name: x\ndut: {forwarder: tc-mirred, cpus: 1}\n"
        "traffic: {rate: 10000, size: 64, duration: 10, cpu: 0}\n"
    )
    done = in_process("run", path, "--check")
    assert done.returncode == 2
    wanted = (("rate", 10_000, "10000 pkt"), ("size", 64, "64 B"), ("duration", 10, "10 s"))
    for line, (key, value, better) in zip(done.stderr.splitlines(), wanted, strict=True):
        begins = f"tailtap: {path}:3: traffic.{key}: {value} has no unit: write '{better}"
        assert line.startswith(begins)


def test_one_cpu_needs_no_list_and_files_of_other_systems_are_read(tmp_path: Path) -> None:
    for cpus in ("1", "[1]"):
        text = f"{{cpus: {cpus}, irq: {cpus}, neighbours: {{n: {{cpu: {{cpus: {cpus}}}}}}}}}"
        experiment = only(tmp_path, f"name: x\ntraffic: {{}}\ndut: {text}\n")
        assert (experiment.dut.cpus, experiment.dut.irq) == ((1,), (1,))
        assert experiment.neighbours[0].options.cpus == (1,)
    path = tmp_path / "e.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\ntraffic: {rate: 1 kpkt/s}\r\n")
    assert read_experiment(path).combinations[0][1].traffic.rate == 1_000


def test_what_a_word_of_others_leads_to_is_there(tmp_path: Path) -> None:
    kinds: list[Mapping[str, Any]] = [PLATFORMS, FORWARDERS, GENERATORS]
    known = {name for kind in kinds for name in kind}
    assert {name for meant in NEARLY.values() for name in meant} <= known
    assert complaint(tmp_path, "name: x\ntraffic: {}\n", "dut.platform=KVM").endswith("take vm")
