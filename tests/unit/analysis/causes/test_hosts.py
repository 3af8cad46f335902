"""What keeps a guest's CPUs from their cores is their host's doing, and is called so."""

from __future__ import annotations

from tailtap.analysis.causes.taxonomy import SERVED, Names, Served, sort

VCPU, HOG = 77, 78
OWNERS = [(6, HOG, 0), (9, 1, 0), (6, VCPU, SERVED), (255, 0, 0), (0, 0, 0)]


def test_what_the_host_did_is_named_so() -> None:
    rows = sort(OWNERS, Names({HOG: "hog"}), Served("vcpu"))
    assert [rows.names[row] for row in rows.of_owners] == [
        ("task", "host: hog"), ("waiting", "host: its thread slept"), ("serving", ""),
        ("steal", "host"), ("unexplained", ""),
    ]  # fmt: skip


def test_a_machine_without_guests_is_no_host() -> None:
    rows = sort(OWNERS, Names({HOG: "hog"}), Served("poll", pids=frozenset((VCPU,))))
    assert "host" not in "".join(name.detail for name in rows.names)
