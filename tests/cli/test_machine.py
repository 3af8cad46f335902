"""Commands about machines: `host`, `testbed power`, and the words that our generator is given."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forms import fits
from program import answer, in_process, tailtap

from tailtap.cli.flow import FlowOptions
from tailtap.cli.generate import generate
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.knob import GROUPS
from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders import LOADERS
from tailtap.lab.generators.flows import Sending
from tailtap.lab.generators.model import Traffic
from tailtap.lab.generators.own import OwnGenerator
from tailtap.remote.local import LocalHost


def test_an_audit_as_json_holds_every_knob() -> None:
    run = tailtap("host", "audit", "--json")
    content = json.loads(run.stdout)
    fits(content)
    assert [row["name"] for row in content["rows"]] == [knob.name for knob in KNOBS]
    assert content["met"] == all(row["answer"] != "not-met" for row in content["rows"])
    assert run.returncode == (0 if content["met"] else 1)
    for row in content["rows"]:
        judged = row["answer"] in ("met", "not-met")
        assert row["why"] and row["source"], row
        assert not judged or None not in (row["value"], row["wanted"]), row


def test_a_named_knob_is_explained() -> None:
    run = in_process("host", "audit", "stat-interval")
    assert "stat-interval" in run.stdout
    assert "folds each core's memory" in " ".join(run.stdout.split())
    assert "transparent-huge-pages" not in run.stdout
    brief = in_process("host", "audit", "--quiet", *GROUPS)
    assert brief.stdout.count("\n") == 1


def test_the_purpose_decides_a_line() -> None:
    assert answer("host", "bootline", "skew-tick")["line"] == "skew_tick=1"
    if len(os.sched_getaffinity(0)) > 1:
        words = ("--quiet", "--cpus", "0", "isolated-cpus", "--role", "bare-metal")
        made = in_process("host", "bootline", *words)
        assert made.stdout == "isolcpus=domain,managed_irq,0\n"
    if not any(loader.found(Tree(Path("/"))) for loader in LOADERS.values()):
        made = in_process("host", "bootline", "--install", "--dry-run", "--quiet")
        assert made.returncode == 3
        assert "neither GRUB nor systemd-boot" in made.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("actions", "state"),
    [(["status"], "off"), (["on"], "on"), (["on", "off"], "off"), (["cycle"], "on")],
)
def test_a_host_is_switched(tmp_path: Path, actions: Sequence[str], state: str) -> None:
    """One whose power is a file."""
    for word in ("on", "off", "state"):
        (tmp_path / word).write_text(word.replace("state", "off"))
    switches = {f"switch_{to}": f"cp {tmp_path}/{to} {tmp_path}/state" for to in ("on", "off")}
    power = {"kind": "command", "status": f"cat {tmp_path}/state", **switches}
    hosts = {"dut": {"ssh": "dut", "power": power}, "other": {"ssh": "other"}}
    roles = {"dut": "dut", "generator": "other", "timestamper": "other"}
    lab = tmp_path / "lab.yaml"
    lab.write_text(json.dumps({"hosts": hosts, "cables": [], "roles": roles}))
    for action in actions:
        done = in_process("testbed", "power", lab, "dut", action, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"schema": "tailtap.power/1", "host": "dut", "power": state}


def parsed(words: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The options of the first flow, and of the others."""
    context = generate.make_context("generate", words)
    return context.params, context.meta["--next"]


def test_one_process_is_given_all_flows() -> None:
    """What the generator of an experiment asks for is understood as it was meant."""
    common = {"duration": "2 s", "cpus": [3, 4]}
    fast = Traffic.model_validate({"rate": "10 kpkt/s", **common})
    slow = Traffic.model_validate({"rate": "7 pkt/s", "size": "imix", **common})
    sendings = [Sending("a", fast), Sending("b", slow)]
    command = OwnGenerator("af_xdp")._command(LocalHost(), sendings)
    first, others = parsed(command[command.index("generate") + 1 :])
    assert (first.pop("cpu"), first.pop("json"), first.pop("quiet")) == ([3, 4], True, False)
    for other in others:
        assert (other.pop("cpu"), other.pop("json"), other.pop("quiet")) == (None, False, False)
    sent = [FlowOptions(**flow).sending() for flow in (first, *others)]
    assert [flow["interface"] for flow in sent] == ["a", "b"]
    assert [flow["rate"] for flow in sent] == [10_000, 7]
    assert [flow["back_end"] for flow in sent] == ["af_xdp", "af_xdp"]
    assert [tuple(flow["sizes"]) for flow in sent] == [fast.sizes, slow.sizes]
    assert {flow["length"] for flow in sent} == {("ns", 2_000_000_000)}


def test_a_flow_has_nothing_from_the_one_before() -> None:
    _, [second, third] = parsed(
        ["a", "--rate", "1 kpkt/s", "--next", "b", "--count", "5", "--next", "c", "--vlan", "7"]
    )
    assert (second["interface"], second["rate"], second["count"]) == ("b", None, 5)
    assert (third["interface"], third["count"], third["vlan"]) == ("c", None, 7)
