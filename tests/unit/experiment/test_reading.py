"""Experiment files: what is accepted, and what each error says and where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from experiment_files import FIVE_LINES, check, complaint

from tailtap.base.errors import InputError
from tailtap.experiment.reading import read_experiment
from tailtap.lab.generators.pattern import parse_pattern
from tailtap.lab.platforms.boot import parameters_of_others

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def test_five_lines_are_enough(tmp_path: Path) -> None:
    [(variables, experiment)] = check(tmp_path, FIVE_LINES).combinations
    assert variables == {}
    assert experiment.parameters() == {
        "dut": {
            "platform": "bare-metal",
            "forwarder": "tc-mirred",
            "line": 1,
            "nodes": {},
            "neighbours": {},
            "links": [],
            "flows": {},
            "route_by": None,
            "functions": False,
            "over": "veth",
            "taps": "ends",
            "cpus": [1],
            "memory": None,
            "cgroup": None,
            "kernel": None,
            "root": None,
            "image": None,
            "boot": "",
            "huge_pages": None,
            "iommu": None,
            "switch": None,
            "silent": None,
            "ports": None,
            "options": {},
            "tuning": "none",
            "irq": "core",
            "napi": "softirq",
            "queues": None,
        },
        "traffic": {
            "generator": "af_packet",
            "options": {},
            "replay": None,
            "rate": 50_000,
            "pattern": {"kind": "constant"},
            "size": 64,
            "duration": 2_000_000_000,
            "warm_up": 1_000_000_000,
            "warm_up_packets": 0,
            "pause": 0,
            "flows": 1,
            "ip": 4,
            "vlan": None,
            "ttl": 64,
            "cpu": 0,
            "bidirectional": False,
            "reverse_cpu": None,
            "slip_limit": 100_000,
            "external": None,
        },
        "tap": {
            "kind": "inline",
            "clock": "monotonic",
            "ports": None,
            "format": "stamps",
            "snap_length": 512,
        },
        "evaluation": {
            "match": "packets",
            "transaction": None,
            "key": "auto",
            "trim": 0,
            "window": 5_000_000_000,
        },
        "counters": False,
        "trace": "none",
        "events": [],
        "interrupts": "none",
    }


def test_traffic_of_every_shape(tmp_path: Path) -> None:
    text = """\
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
    checked = check(tmp_path, text)
    traffics = [experiment.traffic for _, experiment in checked.combinations]
    assert [traffic.packets for traffic in traffics] == [
        100_000,
        100_000,
        100_000 + 10 * 316 + 10,
        10_000,
        150_000,
    ]
    assert sorted(set(traffics[0].sizes)) == [75, 594, 1518]
    assert traffics[0].ranges().flows == 4
    assert traffics[0].warm_up == 0
    assert traffics[0].seconds == 0.1 + 1 + 10
    again = parse_pattern(traffics[4].pattern.text())
    assert again.values(5) == ("ramp", [20_000, 5])
    assert checked.combinations[2][1].parameters()["traffic"]["pattern"] == {
        "kind": "poisson",
        "seed": 7,
    }


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLES))
)
def test_examples_are_valid(path: Path) -> None:
    assert len(read_experiment(path).combinations) >= 1


def documented() -> list[Any]:
    """The experiments that pages show as a whole."""
    blocks = re.compile(r"^```yaml\n(name: .*?)^```", re.S | re.M)
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for number, text in enumerate(blocks.findall(page.read_text()))
    ]


@pytest.mark.parametrize("text", documented())
def test_experiments_in_the_documentation_are_valid(tmp_path: Path, text: str) -> None:
    assert len(check(tmp_path, text).combinations) >= 1


def test_the_wire_has_no_forwarder(tmp_path: Path) -> None:
    checked = check(tmp_path, FIVE_LINES, "dut.platform=wire")
    assert checked.combinations[0][1].parameters()["dut"]["forwarder"] is None


def test_what_a_platform_does_not_use_is_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path, FIVE_LINES, "dut.cgroup=2") == (
        "--set 'dut.cgroup=2': dut.cgroup: platform bare-metal does not have this key, "
        "which belongs to container, crun, runc, podman"
    )


def test_what_one_of_the_platforms_does_not_use_is_refused_with_its_line(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\ndut:\n  memory: 1 GiB\nvary:\n  dut.platform: [vm, bare-metal]\n"
    said = (
        "platform bare-metal does not have this key, which belongs to container, crun, runc, "
        "podman, vm, vm-vhost (separate them with cases, or leave the combination out with "
        "exclude), with "
    )
    assert complaint(tmp_path, text) == (
        f"/e.yaml:4: dut.memory: {said}vary.dut.platform[1] (/e.yaml:6)"
    )
    text = (
        "name: a\ntraffic: {}\ncases:\n  - {dut.platform: vm, dut.memory: 1 GiB}\n"
        "  - {dut.platform: bare-metal, dut.memory: 1 GiB}\n"
    )
    assert complaint(tmp_path, text) == (
        f"/e.yaml:5: cases[1].dut.memory: {said}cases[1].dut.platform (/e.yaml:5)"
    )
    apart = text.replace("bare-metal, dut.memory: 1 GiB", "bare-metal, dut.memory: null")
    assert len(check(tmp_path, apart).combinations) == 2


@pytest.mark.parametrize("vary", ["{}", "{dut.platform: [wire, container]}"])
def test_where_there_is_no_device_nothing_of_it_has_a_meaning(tmp_path: Path, vary: str) -> None:
    overrides = ("dut.memory=1 GiB", "dut.kernel=rt", "dut.boot=quiet", "dut.platform=wire")
    first = check(tmp_path, FIVE_LINES, *overrides[: 3 if vary != "{}" else 4], f"vary={vary}")
    dut = first.combinations[0][1].parameters()["dut"]
    assert (dut["platform"], dut["memory"], dut["kernel"], dut["boot"]) == ("wire", *(None,) * 3)


def test_a_kernel_and_its_boot_parameters_are_two_things(tmp_path: Path) -> None:
    assert complaint(tmp_path, "name: a\ntraffic: {}\nvary:\n  dut.kernel: [rt, nohz]\n") == (
        "/e.yaml:4: vary.dut.kernel[1]: nohz is no kernel, but boot parameters: write dut.boot: "
        "'nohz_full={cpus} rcu_nocbs={cpus} isolcpus={cpus}' and leave dut.kernel out"
    )
    assert complaint(tmp_path, "name: a\ntraffic: {}\ndut: {boot: 'isolcpus={cpu}'}\n") == (
        "/e.yaml:3: dut.boot: {cpu} stands for nothing: known are {cpus}; write {{ for a brace"
    )


def test_a_run_is_without_the_boot_parameters_of_others(tmp_path: Path) -> None:
    def without(text: str) -> list[frozenset[str]]:
        found = check(tmp_path, f"name: a\ntraffic: {{}}\n{text}\n").combinations
        specs = [experiment.devices()[0][1] for _, experiment in found]
        return [parameters_of_others(one.options.boot, one.varied["boot"]) for one in specs]

    assert without("dut: {boot: audit=0}") == [frozenset()]
    assert without("vary: {dut.boot: ['', idle=poll audit=0, audit=1]}") == [
        {"idle", "audit"},
        frozenset(),
        {"idle"},
    ]
    assert without("cases: [{dut.kernel: rt, dut.boot: ''}, {dut.kernel: rt, dut.boot: a}]") == [
        {"a"},
        frozenset(),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: a\ntrafic: {}\n",
            "/e.yaml:2: trafic: unknown key: did you mean 'traffic'?",
        ),
        (
            "name: a\ntraffic:\n  rate: 10 kpkt/s\n  siez: 64 B\n",
            "/e.yaml:4: traffic.siez: unknown key: did you mean 'size'?",
        ),
        (
            "name: a\ntraffic:\n  rate: 10 kpps\n",
            (
                "/e.yaml:3: traffic.rate: '10 kpps' is not a packet rate: write '10 kpkt/s' (known "
                "units: pkt/s, kpkt/s, Mpkt/s)"
            ),
        ),
        (
            "name: a\ntraffic:\n  duration: 10\n",
            (
                "/e.yaml:3: traffic.duration: 10 has no unit: write '10 s', or take one of ns, us, "
                "µs, ms, min, h"
            ),
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  platform: bare_metal\n",
            (
                "/e.yaml:4: dut.platform: there is no platform 'bare_metal': "
                "did you mean 'bare-metal'?"
            ),
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  cpus: 2-3\n",
            ("/e.yaml:4: dut.cpus: '2-3' is text: write a list of CPU numbers, such as [2, 3]"),
        ),
        (
            "name: a\ntraffic:\n  size: 60 B\n",
            (
                "/e.yaml:3: traffic.size: 60 B is no Ethernet frame: with its check sequence one "
                "has 64 B to 9018 B"
            ),
        ),
        (
            "name: a\ntraffic:\n  flows: true\n",
            "/e.yaml:3: traffic.flows: true is wrong, wanted: number, or mapping, such as 16",
        ),
        *(
            (f"name: a\ntraffic:\n  {text}\n", f"/e.yaml:{line}: traffic{message}")
            for text, line, message in [
                (
                    "pattern: bursts",
                    3,
                    (
                        ".pattern: there is no pattern 'bursts': known: constant, burst, poisson, "
                        "on-off, ramp, alone or as {kind: burst, packets: 32}"
                    ),
                ),
                (
                    "generator: moongen",
                    3,
                    ".generator: there is no generator 'moongen': take external",
                ),
                *(
                    (f"generator: external\n  external: {{command: {command}}}", 4, message)
                    for command, message in [
                        (
                            "'x {ratte}'",
                            (
                                ".external.command: {ratte} stands for nothing: known are "
                                "{interface}, {rate}, {gap}, {size}, {packets}, {seconds}, {cpu}, "
                                "{server}, {client}; write {{ for a brace"
                            ),
                        ),
                        (
                            "'x {'",
                            (
                                ".external.command: 'x {' is no template: Single '{' encountered "
                                "in format string"
                            ),
                        ),
                        ("''", ".external.command: an empty command does nothing"),
                    ]
                ),
                *(
                    (
                        f"generator: external\n  external: {{command: x, key: '{key}'}}",
                        4,
                        (
                            f".external.key: '{key}' is not a key of a tap: give moonsniff or "
                            "OFFSET:WIDTH:le|be with a width of 1 to 4 bytes (42:4:le, say)"
                        ),
                    )
                    for key in ("signature", "42:8:le", "42:4")
                ),
                (
                    "generator: external",
                    2,
                    (
                        ": generator: external and external: {command: …} belong together: write "
                        "both or none"
                    ),
                ),
                ("pattern: burst", 3, ".pattern: this key is missing"),
                ("pattern: poisson:sead=3", 3, ".pattern: unknown key: did you mean 'seed'?"),
                ("pattern: poisson:7", 3, ".pattern: '7' in 'poisson:7' should be key=value"),
                (
                    "pattern:\n    kind: burst\n    packets: 0",
                    5,
                    ".pattern.packets: 0 is wrong, wanted: 1 or more",
                ),
                (
                    "pattern:\n    kind: on-off\n    on_time: 1 s\n    of_time: 1 s",
                    6,
                    ".pattern.of_time: unknown key: did you mean 'off_time'?",
                ),
                (
                    "pattern: {kind: on-off, on_time: 0 s, off_time: 1 s}",
                    2,
                    ": a pattern cannot have no time with packets",
                ),
                (
                    "flows:\n    src: 10.0.0.1\n    srcs: 4",
                    5,
                    ".flows.srcs: unknown key: did you mean 'src'?",
                ),
                (
                    "flows: {src: 10.0.0.9-10.0.0.1}",
                    2,
                    (
                        ": flows.src: the range '10.0.0.9-10.0.0.1' is empty or has more than 2^32 "
                        "values"
                    ),
                ),
                (
                    "ip: 6\n  size: 80 B\n  flows: {dst: 10.1.0.1}",
                    2,
                    (
                        ": flows.dst: '10.1.0.1' is no range of IPv6 addresses: write it as "
                        "'fd00::1-fd00::9'"
                    ),
                ),
                (
                    "flows: {sport: 1024-70000}",
                    2,
                    ": flows.sport: '1024-70000' is no range of ports: write it as '1024-2047'",
                ),
                (
                    "flows: 65535",
                    3,
                    ".flows: 65535 is wrong, wanted: 65534 or less",
                ),
                (
                    "ip: 6",
                    2,
                    ": packets of 64 B are too small: headers, id and check sequence take 71 B",
                ),
                ("ip: 5", 3, ".ip: 5 is wrong, wanted: 4 or 6"),
                ("vlan: 4095", 3, ".vlan: 4095 is wrong, wanted: 4094 or less"),
                (
                    "size: imixx",
                    3,
                    (
                        ".size: 'imixx' is not a size: write a number and one of B, kB, KiB, MB, "
                        "MiB, GB, GiB ('64 B')"
                    ),
                ),
                ("size: []", 3, ".size: an empty list of sizes sends nothing: write at least one"),
                (
                    "size: [64 B, 9019 B]",
                    3,
                    (
                        ".size: 9019 B is no Ethernet frame: with its check sequence one has 64 B "
                        "to 9018 B"
                    ),
                ),
                (
                    "warm_up: 1 s\n  warm_up_packets: 5",
                    4,
                    ".warm_up_packets: warm_up gives a time already: write one of the two",
                ),
            ]
        ),
        (
            "name: a\ntraffic:\n  rate: 1 pkt/s\n  duration: 1 ms\n",
            "/e.yaml:2: traffic: not a single packet fits: 1 pkt/s for 1 ms",
        ),
        (
            "name: a\ntraffic: {duration: 2 s}\nevaluation: {trim: 2 s}\n",
            "/e.yaml:3: evaluation.trim: a trim of 2 s leaves nothing of 2 s of traffic",
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  options:\n    classifier: u32\n",
            "/e.yaml:5: dut.options.classifier: unknown key: there is none here",
        ),
        (
            (
                "name: a\ntraffic: {}\ndut:\n  forwarder: fault\n  options:\n    hold:\n"
                "      ids: [1]\n      time: 5\n"
            ),
            (
                "/e.yaml:8: dut.options.hold.time: 5 has no unit: write '5 s', or take one of ns, "
                "us, µs, ms, min, h"
            ),
        ),
        (
            (
                "name: a\ntraffic: {}\ndut:\n  forwarder: fault\n  options: {drop: [3], "
                "duplicate: [3]}\n"
            ),
            "/e.yaml:5: dut.options: packet 3 cannot be dropped and duplicated",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.rate:\n    - 1 kpkt/s\n    - 2 kpkts\n",
            (
                "/e.yaml:6: vary.traffic.rate[1]: '2 kpkts' is not a packet rate: write a number "
                "and one of pkt/s, kpkt/s, Mpkt/s ('10 kpkt/s')"
            ),
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.rat: [1 kpkt/s]\n",
            "/e.yaml:4: vary.traffic.rat[0]: unknown key: did you mean 'rate'?",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  repeat: [1, 2]\n",
            (
                "/e.yaml:4: vary.repeat: only a path into dut, traffic, tap, evaluation can "
                "vary, such as traffic.rate, and trace, interrupts"
            ),
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.flows: 2\n",
            "/e.yaml:4: vary.traffic.flows: write a list of values, such as [1, 2]",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.flows: [2, 2]\n",
            "/e.yaml:4: vary.traffic.flows[1]: 2 is in the list twice",
        ),
        (
            "name: a\ntraffic: {}\nevaluation: {key: moonsnif}\n",
            (
                "/e.yaml:3: evaluation.key: there is no key 'moonsnif' in a stamp file: did you "
                "mean 'moonsniff'? (others are for whole packets: tap: {format: pcap})"
            ),
        ),
        ("traffic: {}\n", "/e.yaml:1: name: this key is missing"),
        ("name: a\nname: b\n", "/e.yaml:2: name: given twice, first on line 1"),
        ("name: &x a\n", "/e.yaml:1: anchors and aliases (&, *) are not supported"),
        ("- a\n", "/e.yaml:1: an experiment is a mapping with at least 'name' and 'traffic'"),
        ("", "/e.yaml:1: an experiment is a mapping with at least 'name' and 'traffic'"),
        ("name: a\n1: b\n", "/e.yaml:2: the key '1' is not a word to YAML: write it in quotes"),
        (
            "name: a\ntraffic: {rate: [\n",
            "/e.yaml:3: not valid YAML: the end of a bracket is missing",
        ),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    assert complaint(tmp_path, text) == message


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_experiment(tmp_path / "none.yaml")
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_experiment(binary)
    large = tmp_path / "l.yaml"
    large.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="more than 1 MB"):
        read_experiment(large)


def test_options_may_stand_with_the_forwarders_name(tmp_path: Path) -> None:
    text = """\
name: options
traffic: {}
vary:
  dut.forwarder:
    - tc-mirred
    - {suricata: {rules: many}}
    - {testpmd: {mode: mac}}
"""
    experiments = [experiment for _, experiment in check(tmp_path, text).combinations]
    assert [(one.dut.forwarder, one.dut.options) for one in experiments] == [
        ("tc-mirred", {}),
        ("suricata", {"rules": "many"}),
        ("testpmd", {"mode": "mac"}),
    ]
    assert experiments[1].parameters()["dut"]["options"] == {"rules": "many"}


@pytest.mark.parametrize(
    ("forwarder", "message"),
    [
        (
            "{suricata: {rule: none}}",
            ":3: dut.forwarder.suricata.rule: unknown key: did you mean 'rules'?",
        ),
        ("{suricata: {rules: no/such}}", ":3: dut.forwarder.suricata.rules: there is no file"),
        ("{suricata: {driver: af_xdp}}", "driver means something with mode: dpdk only"),
        ("{suricata: many}", "the options of forwarder suricata are a mapping, not 'many'"),
        ("{suricata: {}, testpmd: {}}", "forwarder is one name, or one name with its options"),
        ("{suricatta: {}}", "there is no forwarder 'suricatta': did you mean 'suricata'?"),
        ("nothing-like-it", "there is no forwarder 'nothing-like-it': known: tc-mirred, "),
        ("testpmd, options: {mode: routing}", ":3: dut.options.mode: "),
        (
            "{testpmd: {mode: io}}, options: {mode: mac}",
            "the forwarder's options are given twice",
        ),
        ("{external: {command: 'x {port}'}}", ":3: dut.forwarder.external.command: {port} stands"),
    ],
)
def test_a_wrong_forwarder_is_told_with_its_line(
    tmp_path: Path, forwarder: str, message: str
) -> None:
    text = f"name: wrong\ntraffic: {{}}\ndut: {{forwarder: {forwarder}}}\n"
    assert message in complaint(tmp_path, text)


def test_what_is_required_is_no_parameter_of_a_run(tmp_path: Path) -> None:
    text = FIVE_LINES + "require: [p99.9 < 1 ms, profile urllc-5g]\n"
    checked = check(tmp_path, text)
    assert list(checked.require) == ["p99.9 < 1 ms", "profile urllc-5g"]
    assert "require" not in checked.combinations[0][1].parameters()
    assert list(check(tmp_path, text, "require=[loss == 0]").require) == ["loss == 0"]


@pytest.mark.parametrize(
    ("require", "said"),
    [
        ("p99 < 1 ms", ":6: require: "),
        ("\n  - loss == 0\n  - p99 < 1 m", ":8: require[1]: 'p99 < 1 m': '1 m' is not a time"),
        ("[profile urllc]", ":6: require[0]: there is no profile 'urllc'"),
        ("[99]", ":6: require[0]: "),
    ],
)
def test_a_requirement_that_is_none(tmp_path: Path, require: str, said: str) -> None:
    assert said in complaint(tmp_path, f"{FIVE_LINES}require: {require}\n")
