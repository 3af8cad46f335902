"""Work in network namespaces, also in those that others make and remove meanwhile. As root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from namespaces import Namespace

from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.net.inside import NAMESPACES, NoNamespace, inside, inside_those_left
from tailtap.host.net.namespaces import ports
from tailtap.host.net.tap_filters import OWN

CLASS = Path("/sys/class/net")
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def interfaces() -> list[str]:
    return sorted(path.name for path in CLASS.iterdir())


@pytest.fixture
def half_made() -> Iterator[str]:
    """The file that ip-netns(8) makes before it mounts the namespace on it."""
    NAMESPACES.mkdir(exist_ok=True)
    path = NAMESPACES / f"half-made-{uuid4().hex[:8]}"
    path.touch()
    yield path.name
    path.unlink()


def test_the_namespace_of_this_process_is_looked_at() -> None:
    assert inside([(OWN, interfaces)]) == [interfaces()]


@pytest.mark.parametrize("there", [False, True])
def test_what_is_no_namespace_is_left_out(
    namespace: Namespace, half_made: str, there: bool
) -> None:
    namespace.veth("in", "out")
    name = half_made if there else f"{half_made}-not"
    work = [(name, interfaces), (namespace.name, interfaces), (name, interfaces)]
    assert inside_those_left(work, None) == [None, ["in", "lo", "out"], None]
    with pytest.raises(NoNamespace):
        inside(work)


def test_a_namespace_that_is_being_made_has_no_values_and_no_ports(
    namespace: Namespace, half_made: str
) -> None:
    here, gone = (
        KernelValue((FORWARDING,), "1", namespace=space) for space in (namespace.name, half_made)
    )
    assert KernelValue.read_all([here, gone]) == [{FORWARDING: "0"}, {}]
    assert KernelValue.undo_all([(gone, {FORWARDING: "0"})]) == [None]
    assert ports(half_made) == set()
