"""Testbed files, and what is heard over their cables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailtap.base.errors import InputError
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.lab.topology.graphs import Cables
from tailtap.measure.roles.foresee import foresee
from tailtap.measure.testbed.check import Heard, judge
from tailtap.measure.testbed.model import Cable, Socket, cables_of, read_testbed, senders_of
from tailtap.records.printed import Answer

TWO = """\
hosts:
  tester: {ssh: root@tester}
  dut: {ssh: root@dut}
cables:
  - {ends: [tester:c0, dut:c0]}
  - {ends: [dut:c1, tester:c1]}
roles: {dut: dut, generator: tester, timestamper: tester}
"""
THREE = """\
hosts:
  loadgen: {ssh: loadgen}
  stamper: {ssh: stamper}
  dut: {ssh: dut}
cables:
  - {ends: [loadgen:g0, dut:d0], splitter: stamper:t0}
  - {ends: [loadgen:g1, dut:d1], splitter: stamper:t1}
roles: {dut: dut, generator: loadgen, timestamper: stamper}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "lab.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "cables"),
    [
        (TWO, Cables(("c0", "c1"), ("c0", "c1"))),
        (THREE, Cables(("d0", "d1"), ("t0", "t1"), ("g0", "g1"))),
    ],
)
def test_the_cables_of_a_measurement(tmp_path: Path, text: str, cables: Cables) -> None:
    assert cables_of(read_testbed(written(tmp_path, text))) == (cables,)
    assert Cables.of(cables.as_json()) == cables


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hosts:", "host:", "lab.yaml:1: host: "),
        ("tester: {ssh: root@tester}", "tester: {shh: x}", "lab.yaml:2: hosts.tester.shh: "),
        (
            "dut: dut,",
            "dut: dud,",
            "lab.yaml:7: roles.dut: hosts has no dud: there are tester, dut",
        ),
        ("tester:c1", "c1", "lab.yaml:6: cables[1].ends[1]: write HOST:CARD, such as"),
        ("tester:c1", "tester:c0", "lab.yaml:6: cables[1]: tester:c0 has a cable already"),
        ("tester:c1", "third:c1", "lab.yaml:6: cables[1]: hosts has no third"),
        ("root@dut", "-oProxyCommand=x", "lab.yaml:3: hosts.dut.ssh: "),
        ("roles:", "ssh_config: nowhere\nroles:", "lab.yaml:7: ssh_config: there is no file"),
    ],
)
def test_mistakes_have_a_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_testbed(written(tmp_path, TWO.replace(old, new)))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (TWO, "  - {ends: [dut:c1, tester:c1]}\n", "", "1 of them end at dut"),
        (TWO, "timestamper: tester", "timestamper: dut", "same host, or cables a splitter"),
        (THREE, ", splitter: stamper:t1", "", "need a splitter, or none"),
        (THREE, "timestamper: stamper", "timestamper: loadgen", "stamper:t0 should be a card of"),
        (
            THREE,
            "generator: loadgen",
            "generator: stamper",
            "loadgen:g0 should be a card",
        ),
    ],
)
def test_cables_that_do_not_fit_the_roles(
    tmp_path: Path, text: str, old: str, new: str, said: str
) -> None:
    assert old in text
    with pytest.raises(InputError, match=said):
        cables_of(read_testbed(written(tmp_path, text.replace(old, new))))


PLAIN: dict[str, Any] = {"name": "x", "traffic": {"rate": "1 kpkt/s", "duration": "1 s"}}


def test_an_experiment_gets_the_cards_of_a_testbed() -> None:
    cables = Cables(("d0", "d1"), ("t0", "t1"), ("g0", "g1"))
    plain = Experiment.model_validate(PLAIN)
    wired = plain.wired([cables])
    assert (plain.cables(), plain.tap.kind) == ((), "inline")
    assert (wired.cables(), wired.tap.kind) == ((cables,), "passive")
    assert wired.graph().cards == ["g0", "d0", "t0", "d1", "g1", "t1"]
    assert Experiment.model_validate(wired.document()).wired([cables]) == wired
    assert wired.wired(()) is wired


NETWORK = {
    **PLAIN,
    "dut": {
        "forwarder": "kernel-route",
        "nodes": {"r": {"count": 2}},
        "links": ["in - r1 - r2 - out"],
        "flows": {
            "there": {"path": ["in", "r1", "r2", "out"]},
            "short": {"path": ["in", "r1", "r2", "out"]},
        },
    },
}
MORE = {
    TWO: "  - {ends: [tester:c2, dut:c2]}\n  - {ends: [dut:c3, tester:c3]}\n",
    THREE: "  - {ends: [loadgen:g2, dut:d2], splitter: stamper:t2}\n"
    "  - {ends: [loadgen:g3, dut:d3], splitter: stamper:t3}\n",
}


@pytest.mark.parametrize("text", [TWO, THREE])
def test_each_flow_of_a_network_has_cables_of_its_own(tmp_path: Path, text: str) -> None:
    experiment = Experiment.model_validate(NETWORK)
    testbed = read_testbed(written(tmp_path, text.replace("roles:", f"{MORE[text]}roles:")))
    graph = experiment.wired(cables_of(testbed, experiment.entries)).graph()
    plain = experiment.graph()
    cards = {str(port): card for link in graph.links for port, card in link.carded}
    letter = "c" if text == TWO else "d"
    dut = {f"r{node}:tt-{end}{flow}": f"{letter}{2 * flow - 3 + node}"
           for node, end in ((1, "in"), (2, "out")) for flow in (1, 2)}  # fmt: skip
    assert {port: card for port, card in cards.items() if port.startswith("r")} == dut
    assert len(cards) == (8 if text == TWO else 12)
    for flow, before in zip(graph.flows, plain.flows, strict=True):
        assert (flow.passed, flow.stamped) == (before.passed, before.stamped)
    with pytest.raises(InputError, match="it needs one before it and one behind it for each of 2"):
        cables_of(read_testbed(written(tmp_path, text)), experiment.entries)


@pytest.mark.parametrize("text", [TWO, THREE])
def test_each_card_of_a_device_may_have_cables(tmp_path: Path, text: str) -> None:
    """The experiment's cases name the ports, as they do on one machine."""
    testbed = read_testbed(written(tmp_path, text.replace("roles:", f"{MORE[text]}roles:")))
    letter = "c" if text == TWO else "d"
    (tmp_path / "x.yaml").write_text(
        "name: x\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\ncases:\n"
        f"  - {{case: A, dut.ports: [{letter}0, {letter}1]}}\n"
        f"  - {{case: B, dut.ports: [{letter}2, {letter}3]}}\n"
    )
    checked = read_experiment(tmp_path / "x.yaml", on_testbed=True)
    cables = cables_of(testbed, checked.entries)
    checked.wire(cables)
    made = [experiment.cables()[0] for _, experiment in checked.combinations]
    assert [pair.dut for pair in made] == [
        (f"{letter}0", f"{letter}1"),
        (f"{letter}2", f"{letter}3"),
    ]
    assert made == list(cables)
    said = rf"dut.ports: no two cables .* are at x and y: they are at {letter}0 and {letter}1; "
    with pytest.raises(InputError, match=said):
        read_experiment(tmp_path / "x.yaml", ["cases=[{dut.ports: [x, y]}]"], on_testbed=True).wire(
            cables
        )


def test_what_is_missing_is_named_by_the_keys_of_the_testbed() -> None:
    cables = Cables(("tt-no0", "tt-no1"), ("tt-no2", "tt-no3"))
    dut = {"tuning": ["stat-interval"], "cpus": [0]}
    found = foresee(Experiment.model_validate({**PLAIN, "dut": dut}).wired([cables]))
    cards = [text for text in found.problems if "tt-no" in text]
    assert len(cards) == 5
    for text in cards:
        assert "`cables` of the testbed file" in text
        assert not re.search(r"dut\.|tap\.|--interface", text), text


def test_queues_are_those_of_the_duts_cards(tmp_path: Path) -> None:
    """Where the file names no cards, only a testbed has them."""
    path = tmp_path / "x.yaml"
    path.write_text(
        "name: x\ntraffic: {rate: 1 kpkt/s, duration: 1 s}\n"
        "dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [2, 3], queues: 2}\n"
    )
    with pytest.raises(InputError, match=r"x\.yaml:3: dut\.queues: links of the lab"):
        read_experiment(path)
    checked = read_experiment(path, on_testbed=True)
    checked.wire([Cables(("d0", "d1"), ("t0", "t1"))])
    [(_, experiment)] = checked.combinations
    assert experiment.parameters()["dut"]["queues"] == 2
    [dut] = [node for node in experiment.graph().nodes if node.task == "dut"]
    assert dut.placement.queues == 2


@pytest.mark.parametrize(
    ("more", "splitters", "said"),
    [
        (
            {"dut": {"ports": ["a", "b"]}, "tap": {"ports": ["c", "d"]}},
            None,
            "no two cables of the testbed, one after the other, are at a and b: they are at d0 and",
        ),
        ({"tap": {"kind": "passive"}}, None, "tap.kind: passive does not fit"),
        (
            {"tap": {"clock": "hardware"}},
            None,
            "without splitters a packet is stamped before it is sent",
        ),
        (
            {"dut": {"line": 2, "taps": "hops", "forwarder": "kernel-route"}},
            None,
            "does not see what is",
        ),
        (
            {"dut": {"line": 2, "forwarder": "kernel-route", "over": {"sriov": ["d1", "d2"]}}},
            None,
            "dut.over.sriov: d1 has the cable before or behind the DuT",
        ),
        (
            {"events": [{"at": "1 ms", "run": "ls", "where": "generator"}]},
            None,
            "on a testbed commands run on the device's host",
        ),
        (
            {"events": [{"at": "1 ms", "run": "ls"}], "dut": {"silent": "eno1"}},
            None,
            "would not be reached then",
        ),
        (
            {"traffic": {**PLAIN["traffic"], "bidirectional": True}},
            ("g0", "g1"),
            "a splitter copies one direction",
        ),
    ],
)
def test_an_experiment_that_does_not_fit_a_testbed(
    more: dict[str, object], splitters: tuple[str, str] | None, said: str
) -> None:
    experiment = Experiment.model_validate({**PLAIN, **more})
    with pytest.raises(InputError, match=said):
        experiment.wired([Cables(("d0", "d1"), ("t0", "t1"), splitters)])


A, B = (Socket(*text.split(":")) for text in ("a:0", "b:0"))
CABLE = Cable.model_validate({"ends": ["a:0", "b:0"]})
SPLIT = Cable.model_validate({"ends": ["a:0", "b:0"], "splitter": "s:0"})


def heard(**pairs: str) -> Heard:
    """By the host that sends: those that hear it, by their letters."""
    found = {
        name: frozenset(Socket(letter, "0") for letter in text) for name, text in pairs.items()
    }
    return {Socket(name, "0"): found.get(name, frozenset()) for name in "abcds"}


@pytest.mark.parametrize(
    ("cable", "pairs", "down", "answer", "said"),
    [
        (CABLE, {"a": "b", "b": "a"}, set(), "ok", ""),
        (CABLE, {"a": "c", "b": "d"}, set(), "wrong", "what a:0 sends comes to c:0"),
        (CABLE, {"a": "b"}, set(), "dead", "what b:0 sends comes to nobody"),
        (CABLE, {}, {A, B}, "dead", "what a:0 sends comes to nobody; no link at a:0 and b:0"),
        (SPLIT, {"a": "bs", "b": "a"}, set(), "ok", ""),
        (SPLIT, {"a": "b", "b": "as"}, set(), "ok", ""),
        (SPLIT, {"a": "bd", "b": "a"}, set(), "wrong", "s:0 sees nothing of this cable; d:0 does"),
        (SPLIT, {"a": "b", "b": "a"}, set(), "wrong", "s:0 sees nothing of this cable"),
        (SPLIT, {"a": "s", "b": "a"}, set(), "dead", "what a:0 sends comes to nobody"),
    ],
)
def test_the_answers(
    cable: Cable, pairs: Mapping[str, str], down: set[Socket], answer: Answer, said: str
) -> None:
    found = judge(cable, heard(**pairs), down, set("abcds"))
    assert (found.answer, found.said) == (answer, said)


@pytest.mark.parametrize(
    ("sender", "answer", "said"),
    [
        (A, "wrong", "s:0 sees what b:0 sends, and a:0 sends what is measured: it is on the other"),
        (B, "ok", ""),
    ],
)
def test_a_splitter_copies_the_fibre_that_is_measured(
    sender: Socket, answer: Answer, said: str
) -> None:
    found = judge(SPLIT, heard(a="b", b="as"), set(), set("abs"), sender)
    assert found.answer == answer
    assert found.said.startswith(said)


def test_cables_of_the_device_send_in_turn(tmp_path: Path) -> None:
    text = THREE.replace("roles:", "  - {ends: [loadgen:x, stamper:y]}\nroles:")
    found = senders_of(read_testbed(written(tmp_path, text)))
    assert found == [Socket("loadgen", "g0"), Socket("dut", "d1"), None]


def test_a_host_that_is_not_there_leaves_its_cables_open() -> None:
    found = judge(SPLIT, heard(a="b", b="a"), set(), {"a", "b"})
    assert (found.answer, found.said) == ("unknown", "s could not be asked")
