"""What `tailtap forward` refuses, before it looks at any interface."""

from __future__ import annotations

import pytest
from program import one_line_error, tailtap

from tailtap.cli.datapath import forward

WITH_XDP = {"--xdp", "--both-ways", "--json", "--quiet"}
VALUES = {"--hold-for": "2 ms", "--limit": "1 kpkt/s"}


def options() -> set[str]:
    named = {parameter.opts[0] for parameter in forward.params}
    return {name for name in named if name.startswith("--")}


@pytest.mark.parametrize("option", sorted(options() - WITH_XDP))
def test_what_means_nothing_in_the_kernel_is_refused_with_xdp(option: str) -> None:
    refused = tailtap("forward", "a", "b", "--xdp", "native", option, VALUES.get(option, "0"))
    message = one_line_error(refused, 2)
    assert message == f"tailtap: --xdp redirects every packet in the kernel: leave out {option}"


@pytest.mark.parametrize(
    ("option", "value", "needs"),
    [("--hold-for", "2 ms", "--hold"), ("--queue", "0", "--limit")],
)
def test_options_of_others_are_refused_without_them(option: str, value: str, needs: str) -> None:
    message = one_line_error(tailtap("forward", "a", "b", option, value), 2)
    assert message.startswith(f"tailtap: {option} ")
    assert needs in message.split()


def test_both_ways_needs_xdp() -> None:
    assert "--xdp" in one_line_error(tailtap("forward", "a", "b", "--both-ways"), 2)
