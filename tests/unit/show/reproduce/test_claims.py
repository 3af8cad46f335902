"""What runs here say of a published claim, and between which machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparisons import sample

from tailtap.analysis.runs.run import Run
from tailtap.records.site import Difference
from tailtap.records.verdict import ClaimRow, Held
from tailtap.show.reproduce.claims import answer_claims, differences

OTHER = Difference(what="processor", there="a", here="b", machine=True)
NEWER = Difference(what="version of tailtap", there="1", here="2", machine=False)


def row(answer: Held, *, compares: bool = False) -> ClaimRow:
    return ClaimRow(id="claim-1", says="It is so.", test="p99 < 1 ms", answer=answer,
                    reason="so", compares=compares, evidence=[])  # fmt: skip


@pytest.mark.parametrize(
    ("there", "here", "compares", "different", "answer"),
    [
        ("held", "held", False, [OTHER], "reproduced"),
        ("held", "contradicted", False, [], "contradicted"),
        ("held", "contradicted", False, [NEWER], "contradicted"),
        # A requirement is about its machine, a comparison about what is compared.
        ("held", "contradicted", False, [OTHER], "not shown"),
        ("held", "contradicted", True, [OTHER], "contradicted"),
        ("held", "not shown", True, [], "not shown"),
        ("not shown", "held", True, [OTHER], "reproduced"),
        ("not shown", "not shown", True, [], "not shown"),
        ("contradicted", "held", True, [], "contradicted"),
    ],
)
def test_answers(
    there: Held, here: Held, compares: bool, different: list[Difference], answer: str
) -> None:
    again = row(there, compares=compares)
    (found,) = answer_claims([again], [again], [row(here, compares=compares)], different)
    assert found.answer == answer
    if answer == "not shown" and different:
        assert "on another machine (processor)" in found.reason


def machine(**more: Any) -> Run:
    environment = {
        "kernel": {"release": "6.18", "command_line": "root=/dev/vda quiet", "preemption": "none"},
        "cpu": {"model": "A", "governors": {"0": "performance"}, "isolated": "1"},
        "memory": 2**34, "versions": {"tailtap": "0.1"}, "hostname": "one", **more,
    }  # fmt: skip
    return sample("x", 1, 1000, more={"environment": environment})


def test_what_differs_between_machines() -> None:
    # Names, and where a disk is, are no difference; what nobody says is none either.
    same = machine(
        hostname="two", kernel={"release": "6.18", "command_line": "quiet root=/dev/sda"}
    )
    assert differences([machine()], [same]) == []
    other = machine(
        cpu={"model": "B", "governors": {"0": "powersave"}, "isolated": ""},
        versions={"tailtap": "0.2"},
    )
    found = differences([machine()], [other])
    assert [(one.what, one.there, one.here, one.machine) for one in found] == [
        ("processor", "A", "B", True),
        ("governors", "performance", "powersave", True),
        ("isolated CPUs", "1", "none", True),
        ("version of tailtap", "0.1", "0.2", False),
    ]


def test_smallest_scale_and_commands(tmp_path: Path) -> None:
    from tailtap.experiment.reading import demands_of, read_experiment, smallest

    file = tmp_path / "e.yaml"
    file.write_text("""\
name: scales
dut: {cpus: [1]}
traffic: {rate: 1 kpkt/s, duration: 10 s, cpu: 0}
scales:
  long: {traffic.duration: 60 s}
  short: {traffic.duration: 1 s, repeat: 3}
events: [{at: 100 ms, run: [ip, link]}]
""")
    assert smallest(file, []) == ["scale=short"]
    assert smallest(file, ["repeat=1"]) == ["scale=short", "repeat=1"]
    assert demands_of(read_experiment(file)) == ["events: ip link"]


@pytest.mark.parametrize(
    ("dut", "demand"),
    [
        ("", ""),
        ("forwarder: fault, options: {hold: {ids: [1], time: 10 us}}", ""),
        ("platform: vm, memory: 1 GB", ""),
        ("ports: [eno1, eno2]", "dut.ports: eno1, eno2"),
        ("tuning: runtime", "dut.tuning: runtime"),
        ("tuning: {without: timers}", "dut.tuning"),
        ("platform: vm, huge_pages: true", "dut.huge_pages: True"),
        ("platform: container, image: docker.io/x", "dut.image: docker.io/x"),
        ("platform: container, root: /", "dut.root: /"),
        ("platform: vm, boot: isolcpus=1", "dut.boot: isolcpus=1"),
        ("forwarder: nftables, options: {rules: rules}", "dut.options.rules: rules"),
        ("forwarder: testpmd, options: {huge_pages: true}", "dut.options.huge_pages: True"),
    ],
)
def test_what_an_experiment_of_others_takes_of_the_machine(
    tmp_path: Path, dut: str, demand: str
) -> None:
    from tailtap.experiment.reading import demands_of, read_experiment

    file = tmp_path / "e.yaml"
    file.write_text(
        f"name: a\ndut: {{cpus: [1], {dut}}}\n"
        "traffic: {rate: 1 kpkt/s, duration: 1 s, cpu: 0}\n"
        + ("tap: {ports: [eno3, eno4]}\n" if "ports" in dut else "")
    )
    found = demands_of(read_experiment(file))
    assert bool(found) == bool(demand) and demand in "; ".join(found), found
