"""One tap in several network namespaces: the links name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from labtools import stamps
from namespaces import Lab, Namespace


def test_one_tap_stamps_in_several_namespaces(lab: Lab, tmp_path: Path) -> None:
    """By a name and by a path; it leaves nothing in any of them."""
    one, other = lab.namespace(), lab.namespace()
    for namespace in (one, other):
        namespace.veth("gen", "in")
    path = f"/run/netns/{other.name}"
    tap = one.start(
        *("tap", "in:drop", f"far={other.name}/in", f"out={path}/gen@egress"),
        *("--write", f"{tmp_path}/{{link}}.stamps"),
    )
    for namespace, count in ((one, 30), (other, 40)):
        send = ("generate", "gen", "--rate", "10 kpkt/s", "--count", str(count), "--no-bypass")
        namespace.tailtap(*send)
    links = tap.stop()["links"]
    assert {name: link["seen"] for name, link in links.items()} == {"in": 30, "far": 40, "out": 40}
    assert [link["namespace"] for link in links.values()] == [None, other.name, path]
    # It was there at the end as well, though it had given root's privileges up.
    assert [link["warnings"] for link in links.values()] == [[], [], []]
    assert [link["dropped"] for link in links.values()] == [0, 0, 0]
    left, came = (stamps(tmp_path / f"{name}.stamps")["time_ns"] for name in ("out", "far"))
    assert (left <= came).all()
    for namespace in (one, other):
        assert "clsact" not in namespace.run("tc", "qdisc", "show").stdout


@pytest.mark.parametrize(
    ("link", "status", "said"),
    [
        ("tt-none/in", 2, "no network namespace 'tt-none'"),
        ("/in", 2, "is not a link"),
        ("/proc/self/status/in", 3, "cannot work in network namespace"),
    ],
)
def test_a_namespace_that_cannot_be_tapped_is_named(
    namespace: Namespace, tmp_path: Path, link: str, status: int, said: str
) -> None:
    write = ("--write", f"{tmp_path}/x.stamps")
    done = namespace.tailtap("tap", link, *write, check=False)
    assert done.returncode == status
    assert said in done.stderr.replace('"', "'")
    assert len(done.stderr.splitlines()) == 1
