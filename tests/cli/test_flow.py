"""`tailtap generate` for several flows: what it is told, and what it refuses."""

from __future__ import annotations

from typing import Any

import click
import pytest

from tailtap.base.errors import InputError
from tailtap.cli.flow import FlowOptions
from tailtap.cli.generate import generate
from tailtap.lab.generators.flows import Sending
from tailtap.lab.generators.model import Traffic
from tailtap.lab.generators.own import OwnGenerator
from tailtap.remote.local import LocalHost


def parsed(words: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The options of the first flow, and of the others."""
    context = generate.make_context("generate", words)
    return context.params, context.meta["--next"]


def test_one_process_is_told_of_all_flows() -> None:
    """What the generator of an experiment asks for is understood as it was meant."""
    fast = Traffic.model_validate({"rate": "10 kpkt/s", "duration": "2 s", "cpu": 3})
    slow = Traffic.model_validate({"rate": "7 pkt/s", "duration": "2 s", "size": "imix", "cpu": 3})
    sendings = [Sending("a", fast), Sending("b", slow)]
    command = OwnGenerator("af_xdp")._command(LocalHost(), sendings)
    first, others = parsed(command[command.index("generate") + 1 :])
    assert (first.pop("cpu"), first.pop("json"), first.pop("quiet")) == (3, True, False)
    for other in others:
        assert (other.pop("cpu"), other.pop("json"), other.pop("quiet")) == (None, False, False)
    asked = [FlowOptions(**flow).sending() for flow in (first, *others)]
    assert [flow["interface"] for flow in asked] == ["a", "b"]
    assert [flow["rate"] for flow in asked] == [10_000, 7]
    assert [flow["back_end"] for flow in asked] == ["af_xdp", "af_xdp"]
    assert [tuple(flow["sizes"]) for flow in asked] == [fast.sizes, slow.sizes]
    assert {flow["length"] for flow in asked} == {("ns", 2_000_000_000)}


def test_a_flow_has_nothing_from_the_one_before() -> None:
    _, [second, third] = parsed(
        ["a", "--rate", "1 kpkt/s", "--next", "b", "--count", "5", "--next", "c", "--vlan", "7"]
    )
    assert (second["interface"], second["rate"], second["count"]) == ("b", None, 5)
    assert (third["interface"], third["count"], third["vlan"]) == ("c", None, 7)


def test_a_flow_without_an_interface_is_refused() -> None:
    with pytest.raises(click.UsageError, match="interface"):
        parsed(["a", "--rate", "1 kpkt/s", "--count", "1", "--next", "--rate", "1 kpkt/s"])


@pytest.mark.parametrize("words", [["--cpu", "1"], ["--json"], ["--quiet"]])
def test_what_is_of_all_flows_is_said_once(words: list[str]) -> None:
    flow = ["a", "--rate", "1 kpkt/s", "--count", "1"]
    with pytest.raises(InputError, match=f"{words[0]} is of all flows"):
        generate.main([*flow, "--next", *flow, *words], standalone_mode=False)
