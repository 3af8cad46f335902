"""Whatever stands at a key, a message says what is wrong in words of the file, not of Python."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment_files import complaint
from program import in_process

from tailtap.base.errors import InputError
from tailtap.base.suggest import NEARLY
from tailtap.experiment.combinations import SECTIONS
from tailtap.experiment.fields import models_in
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.generators.pattern import PATTERNS
from tailtap.lab.neighbours import NEIGHBOURS
from tailtap.lab.platforms import PLATFORMS

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
    path, told = tmp_path / "e.yaml", 0
    for content, key in places():
        for value in WRONG:
            path.write_text(yaml.dump(with_value(content, key, value), Dumper=DUMPER))
            try:
                read_experiment(path)
            except InputError as error:
                for line in error.lines:
                    told += 1
                    said = line.removeprefix(str(path))
                    assert re.match(r":\d+: \S", said), (key, value, line)
                    assert FOREIGN.search(said) is None, (key, value, line)
                    assert "\n" not in said, (key, value, line)
    assert told > 1500


def test_each_mistake_of_a_file_is_a_line(tmp_path: Path) -> None:
    """Four numbers without a unit: one CPU may be written so, the rest is told."""
    path = tmp_path / "bare.yaml"
    path.write_text(
        "name: x\ndut: {forwarder: tc-mirred, cpus: 1}\n"
        "traffic: {rate: 10000, size: 64, duration: 10, cpu: 0}\n"
    )
    done = in_process("run", path, "--check")
    assert done.returncode == 2
    [rate, size, duration] = done.stderr.replace(str(path), "bare.yaml").splitlines()
    assert rate.startswith(
        "tailtap: bare.yaml:3: traffic.rate: 10000 has no unit: write '10000 pkt"
    )
    assert size.startswith("tailtap: bare.yaml:3: traffic.size: 64 has no unit: write '64 B'")
    assert duration.startswith(
        "tailtap: bare.yaml:3: traffic.duration: 10 has no unit: write '10 s"
    )


@pytest.mark.parametrize("written", ["1", "[1]"])
def test_one_cpu_needs_no_list(tmp_path: Path, written: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        f"name: x\ntraffic: {{}}\ndut: {{cpus: {written}, irq: {written}, neighbours: "
        f"{{n: {{cpu: {{cpus: {written}}}}}}}}}\n"
    )
    [(_, experiment)] = read_experiment(path).combinations
    assert (experiment.dut.cpus, experiment.dut.irq) == ((1,), (1,))
    assert experiment.neighbours[0].options.cpus == (1,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\ntraffic:\n\trate: 1 pkt/s\n", ":3: not valid YAML: there is a tab"),
        ("name: x\ntraffic:\n  rate:\t1 pkt/s\n", ":3: not valid YAML: there is a tab"),
        ("name: x\ntraffic:\n  rate: 1 pkt/s\n size: 64 B\n", ":4: not valid YAML: this line does"),
        ("name: x\ntraffic: {rate: 1 pkt/s\n", "the end of the bracket that begins on line 2"),
        ("name: x\ntraffic: {}}\n", ":2: not valid YAML: nothing opens the bracket that } closes"),
        ("name: x\ntraffic: {rate:1 pkt/s}\n", "write a blank behind the colon, 'rate: 1 pkt/s'"),
        ("name x\ntraffic: {}\n", ":2: not valid YAML: a colon too many, or none on the line"),
        ('name: "x\ntraffic: {}\n', ":3: not valid YAML: the quote that begins on line 1"),
        ("name: @x\ntraffic: {}\n", ":1: not valid YAML: write text that begins with @ in quotes"),
        ("name: x\ntraffic: {}\n---\nname: y\n", ":3: not valid YAML: it has a second document"),
        ("name: x\ntraffic: {on: 1}\n", ":2: the key 'on' is not a word to YAML"),
    ],
)
def test_yaml_that_is_none_is_told_in_words(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_files_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\ntraffic: {rate: 1 kpkt/s}\r\n")
    assert read_experiment(path).combinations[0][1].traffic.rate == 1_000


@pytest.mark.parametrize(
    ("key", "word", "said"),
    [
        ("dut.platform", "docker", "take podman or crun or runc or container"),
        ("dut.platform", "KVM", "take vm"),
        ("dut.platform", "lxc", "take container"),
        ("dut.platform", "veth", "take wire"),
        ("dut.forwarder", "vpp", "take external"),
        ("dut.forwarder", "iptables", "take nftables"),
        ("traffic.generator", "iperf", "take external"),
        ("dut.platform", "containr", "did you mean 'container'?"),
    ],
)
def test_what_others_call_a_kind_leads_to_it(
    tmp_path: Path, key: str, word: str, said: str
) -> None:
    assert complaint(tmp_path, "name: x\ntraffic: {}\n", f"{key}={word}").endswith(said)


def test_what_a_word_leads_to_is_there() -> None:
    kinds: list[Mapping[str, Any]] = [PLATFORMS, FORWARDERS, GENERATORS]
    known = {name for kind in kinds for name in kind}
    assert {name for meant in NEARLY.values() for name in meant} <= known


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("traffic.rate", "10 kpps", "write '10 kpkt/s'"),
        ("traffic.rate", "1 Gbit/s", "which counts packets, not bits"),
        ("traffic.size", "64 bytes", "write '64 B'"),
        ("traffic.duration", "10 sec", "write '10 s'"),
        ("traffic.duration", "1.5 minutes", "write '1.5 min'"),
        ("traffic.warm_up", "5", "5 has no unit: write '5 s'"),
    ],
)
def test_units_of_others_lead_to_ours(tmp_path: Path, key: str, value: str, said: str) -> None:
    assert said in complaint(tmp_path, "name: x\ntraffic: {}\n", f"{key}={value}")
