"""What is wrong in an experiment file is one line, in the file's own words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from experiment_files import FIVE_LINES, complaint

from tailtap.base.errors import InputError
from tailtap.experiment.reading import read_experiment

BARE = "name: a\ntraffic: {}\n"
CARDS = """\
name: cards
traffic: {}
cases:
  - {dut.ports: [a0, a1], tap.ports: [b0, b1]}
  - {tap.ports: [d0, d1], dut.ports: [c0, c1]}
vary:
  traffic.rate: [10 kpkt/s, 20 kpkt/s]
"""

SCALES = """\
name: scaled
traffic: {rate: 10 kpkt/s, duration: 2 s}
vary:
  traffic.flows: [1, 2]
scales:
  paper: {traffic.rate: 1 Mpkt/s, traffic.duration: 160 s, repeat: 10}
  wide: {"vary.traffic.flows": [1, 100]}
"""

READING = [
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
        ("/e.yaml:4: dut.platform: there is no platform 'bare_metal': did you mean 'bare-metal'?"),
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
                            "{interface}, {rate}, {mbit}, {gap}, {size}, {packets}, {seconds}, "
                            "{flows}, {cpu}, {server}, {client}, {pci}, {pci_back}, {port}, "
                            "{port_back}; write {{ for a brace"
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
                    (
                        "'x {pci}'",
                        (
                            ".external: {pci} is of cards that the kernel hands over: write "
                            "driver: vfio-pci"
                        ),
                    ),
                    (
                        "x, sent: 'TX [0-9]+'",
                        (
                            ".external.sent: 'TX [0-9]+' has 0 groups: put the number, and "
                            "nothing else, in parentheses"
                        ),
                    ),
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
    (
        "name: a\ntraffic: {}\ntap: {kind: external}\n",
        (
            "/e.yaml:3: tap: kind: external and external: {command: …} belong together: write both "
            "or none"
        ),
    ),
    (
        "name: a\ntraffic: {}\ntap: {kind: external, external: {command: x, egress: -b.txt}}\n",
        "/e.yaml:3: tap.external.egress: '-b.txt' is to end with .mscap or .pcap",
    ),
    (
        "name: a\ntraffic: {}\nkeep: [stamps]\n",
        (
            "/e.yaml:3: keep: every result is read from the evaluation, and the worst latencies "
            "are in it: write [evaluation, worst], or leave it out"
        ),
    ),
    (
        "name: a\ntraffic: {}\nkeep: [evaluation, worst]\ntrace: thin\n",
        (
            "/e.yaml:3: keep: causes are found by the stamps of late packets: keep stamps, or "
            "leave trace out"
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
]

FORWARDERS = [
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
]

REQUIRED = [
    ("p99 < 1 ms", ":6: require: "),
    ("\n  - loss == 0\n  - p99 < 1 m", ":8: require[1]: 'p99 < 1 m': '1 m' is not a time"),
    ("[profile urllc]", ":6: require[0]: there is no profile 'urllc'"),
    ("[99]", ":6: require[0]: "),
]

YAML = [
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
]

OTHERS_KINDS = [
    ("dut.platform", "docker", "take podman or crun or runc or container"),
    ("dut.platform", "KVM", "take vm"),
    ("dut.platform", "lxc", "take container"),
    ("dut.platform", "veth", "take wire"),
    ("dut.forwarder", "vpp", "take external"),
    ("dut.forwarder", "iptables", "take nftables"),
    ("traffic.generator", "iperf", "take external"),
    ("dut.platform", "containr", "did you mean 'container'?"),
]

OTHERS_UNITS = [
    ("traffic.rate", "10 kpps", "write '10 kpkt/s'"),
    ("traffic.rate", "1 Gbit/s", "which counts packets, not bits"),
    ("traffic.size", "64 bytes", "write '64 B'"),
    ("traffic.duration", "10 sec", "write '10 s'"),
    ("traffic.duration", "1.5 minutes", "write '1.5 min'"),
    ("traffic.warm_up", "5", "5 has no unit: write '5 s'"),
]
IN_SCALE = [
    ("{traffic.rat: 1 pkt/s}", "/e.yaml:5: traffic.rat: unknown key: did you mean 'rate'?"),
    ("{traffic.rate: 1}", "/e.yaml:5: traffic.rate: 1 has no unit"),
    (
        "{dut.cpus: [1]}",
        (
            "/e.yaml:5: scales.paper.dut.cpus: dut.cpus is varied by /e.yaml:3: set "
            "the list instead, as vary.dut.cpus"
        ),
    ),
    ("{name: b}", "/e.yaml:5: scales.paper.name: a scale cannot set name"),
    ("7", "/e.yaml:5: scales.paper: write a mapping from key paths to values, such as {repeat"),
    ("{name.first: b}", "/e.yaml:5: scales.paper.name.first: a scale cannot set name"),
    ("{repeat.first: 2}", '/e.yaml:5: repeat: {"first": 2} is wrong, wanted: whole number, 1 to'),
]
TWO_CASES = "cases: [{traffic.cpu: 0, dut.cpus: [1]}, {traffic.cpu: 1, dut.cpus: [0]}]\n"
RATES = "vary:\n  traffic.rate: [1 pkt/s, 1 kpkt/s]\n  traffic.duration: [2 s, 100 ms]\n"
MEMORY = (
    "platform bare-metal does not have this key, which belongs to container, crun, runc, podman, "
    "vm, vm-vhost (separate them with cases, or leave the combination out with exclude), with "
)
VARY = "vary: {traffic.rate: [10 kpkt/s, 20 kpkt/s]}\n"
VARIED = FIVE_LINES + "vary:\n  traffic.flows: [1, 2]\n"
NUMBERS = list(range(1, 1001))
ALONE: list[tuple[str, str]] = [
    (CARDS + "  tap.ports: [[b0, b1]]\n",
     "/e.yaml:8: vary.tap.ports: the cases vary it already (/e.yaml:4): leave one of them out"),
    (BARE + "cases: [{dut.options: {}}]\nvary:\n  dut.options.drop: [[1]]\n",
     "/e.yaml:5: vary.dut.options.drop: dut.options varies as a whole already"),
    (BARE + "vary:\n  dut.options: [{}]\n  dut.options.drop: [[1]]\n",
     "/e.yaml:5: vary.dut.options.drop: dut.options varies as a whole already"),
    (CARDS + "scales:\n  large: {tap.ports: [x, y]}\n",
     "/e.yaml:9: scales.large.tap.ports: tap.ports is varied by /e.yaml:3: set the list instead"),
    (BARE + TWO_CASES + "exclude: [{traffic.cpu: 0, dut.cpus: [0]}]\n",
     "/e.yaml:4: exclude[0]: this excludes nothing: no combination has all of these values"),
    (BARE + "exclude: [{dut.cpus: [1]}]\n",
     "/e.yaml:3: exclude[0].dut.cpus: this key does not vary: nothing varies in this file"),
    (BARE + RATES + "evaluation: {trim: 1 ms}\n",
     ("/e.yaml:2: traffic: not a single packet fits: 1 pkt/s for 100 ms, with "
     "vary.traffic.rate[0] (/e.yaml:4) and vary.traffic.duration[1] (/e.yaml:5)")),
    (BARE + "dut: {options: {mode: io}}\nvary:\n  dut.forwarder: [testpmd, dpdk-l2fwd]\n",
     "/e.yaml:3: dut.options.mode: unknown key"),
    (BARE + "dut: {options: {mode: io}}\nvary:\n  dut.forwarder: [testpmd, dpdk-l2fwd]\n",
     ", with vary.dut.forwarder[1] (/e.yaml:5)"),
    (BARE + "vary:\n" + "".join(f"  traffic.{key}: {NUMBERS}\n" for key in (
        "flows", "cpu", "vlan", "reverse_cpu", "warm_up_packets")),
     "1000000000000000 combinations, at most 10000"),
    (BARE + f"vary:\n  traffic.flows: {NUMBERS[:150]}\n  dut.cpus: {[[n] for n in NUMBERS[:150]]}",
     "22500 combinations, at most 10000"),
    (BARE + "differs: much\n", ("/e.yaml:3: differs: 'much' is wrong, wanted: list of sentences, "
     "such as [The forwarder is DPDK's l2fwd; the paper's was libmoon's.]")),
    (FIVE_LINES + "scale: paper\n", "/e.yaml:6: scale: unknown key: did you mean 'scales'?"),
    (FIVE_LINES + "scales: paper\n", "/e.yaml:6: scales: this is a mapping from a name to key"),
    (BARE + VARY + "figures: [{kind: counter, counter: LOC}]\n", "nothing is counted"),
    (BARE + VARY + "figures: [{kind: hdr, name: one}, {kind: worst, name: one}]\n",
     "figures[1].name: one is taken already"),
    (BARE + "dut:\n  memory: 1 GiB\nvary:\n  dut.platform: [vm, bare-metal]\n",
     f"/e.yaml:4: dut.memory: {MEMORY}vary.dut.platform[1] (/e.yaml:6)"),
    (BARE + "cases:\n  - {dut.platform: vm, dut.memory: 1 GiB}\n"
     "  - {dut.platform: bare-metal, dut.memory: 1 GiB}\n",
     f"/e.yaml:5: cases[1].dut.memory: {MEMORY}cases[1].dut.platform (/e.yaml:5)"),
    (BARE + "vary:\n  dut.kernel: [rt, nohz]\n",
     ("/e.yaml:4: vary.dut.kernel[1]: nohz is no kernel, but boot parameters: write dut.boot: "
     "'nohz_full={cpus} rcu_nocbs={cpus} isolcpus={cpus}' and leave dut.kernel out")),
    (BARE + "dut: {boot: 'isolcpus={cpu}'}\n",
     "/e.yaml:3: dut.boot: {cpu} stands for nothing: known are {cpus}; write {{ for a brace"),
    (BARE + "cases:\n  - {case: '', traffic.rate: 1 kpkt/s}\n",
     "/e.yaml:4: cases[0].case: write the name"),
    (BARE + "cases:\n  - {case: [a], traffic.rate: 1 kpkt/s}\n",
     "/e.yaml:4: cases[0].case: write the name"),
    (BARE + "vary: {case: [a]}\n", "only a path into"),
]  # fmt: skip
SET: list[tuple[str, tuple[str, ...], str]] = [
    (FIVE_LINES, ("traffic.rate=20",), ("--set 'traffic.rate=20': traffic.rate: 20 has no unit: "
     "write '20 pkt/s', or take one of kpkt/s, Mpkt/s")),
    (FIVE_LINES, ("trafic.rate=20 pkt/s",),
     "--set 'trafic.rate=20 pkt/s': trafic: unknown key: did you mean 'traffic'?"),
    (FIVE_LINES, ("traffic.rate",), "write it as path=value"),
    (FIVE_LINES, ("name.first=x",), "holds a single value"),
    (FIVE_LINES, ("scale=paper",), "--set 'scale=paper': /e.yaml has no scales"),
    (FIVE_LINES, ("dut.cgroup=2",), ("--set 'dut.cgroup=2': dut.cgroup: platform bare-metal does "
     "not have this key, which belongs to container, crun, runc, podman")),
    (VARIED, ("traffic.flows=3",), ("--set 'traffic.flows=3': traffic.flows is varied by "
     "/e.yaml:7: set the list instead, --set 'vary.traffic.flows=[…]'")),
    (CARDS, ("dut.ports=[x, y]",), ("--set 'dut.ports=[x, y]': dut.ports is varied by /e.yaml:3: "
     "set the list instead, --set 'cases=[…]'")),
    (SCALES, ("scale=papers",),
     "--set 'scale=papers': there is no scale 'papers': did you mean 'paper'?"),
    (SCALES, ("scale=wide", "scale=paper"),
     "--set 'scale=paper': the scale is wide already: choose one"),
    (SCALES, ("scales.paper.repeat=2",),
     "--set 'scales.paper.repeat=2': set the value itself, not that of a scale"),
    *((BARE, (f"{key}={word}",), said) for key, word, said in (*OTHERS_KINDS, *OTHERS_UNITS)),
]  # fmt: skip


def mistakes() -> Iterator[tuple[str, tuple[str, ...], str]]:
    yield from SET
    yield from ((text, (), said) for text, said in (*READING, *YAML, *ALONE))
    for name in FORWARDERS:
        yield f"{BARE}dut: {{forwarder: {name[0]}}}\n", (), name[1]
    yield from ((f"{FIVE_LINES}require: {text}\n", (), said) for text, said in REQUIRED)
    for chosen in ((), ("scale=paper",)):  # whether or not it is chosen
        scaled = f"{BARE}vary: {{dut.cpus: [[0], [1]]}}\nscales:\n  paper: "
        yield from ((scaled + text, chosen, said) for text, said in IN_SCALE)


@pytest.mark.parametrize(("text", "overrides", "said"), list(mistakes()))
def test_a_mistake_is_one_line(
    tmp_path: Path, text: str, overrides: tuple[str, ...], said: str
) -> None:
    assert said in complaint(tmp_path, text, *overrides)


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    with pytest.raises(InputError, match="No such file"):
        read_experiment(file)
    for content, said in ((b"\xff\xfe\x00", "not UTF-8"), (b"#" * 1_000_001, "more than 1 MB")):
        file.write_bytes(content)
        with pytest.raises(InputError, match=said):
            read_experiment(file)
