"""What `tailtap observe` takes for an interface."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailtap.base.errors import InputError
from tailtap.measure.observe import interfaces
from tailtap.measure.observe.interfaces import PLACES, Target, find, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("eth0", Target("eth0", "eth0")),
        ("eth0.5@egress", Target("eth0.5@egress", "eth0.5", at="egress")),
        ("blue/eth0", Target("blue/eth0", "eth0", "", "blue")),
        (
            "/proc/8/ns/net/eth0@arrival",
            Target("/proc/8/ns/net/eth0@arrival", "eth0", "", "/proc/8/ns/net", "arrival"),
        ),
        ("container:web/eth0", Target("container:web/eth0", "eth0", "container", "web")),
        ("pid:12/eth0", Target("pid:12/eth0", "eth0", "pid", "12")),
        ("pod:x-1/eth0", Target("pod:x-1/eth0", "eth0", "pod", "x-1")),
    ],
)
def test_a_target_is_a_place_and_an_interface(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "/", "a/", "/eth0", "container:/eth0", "tv:x/eth0", "eth0@", "eth0@both", "@egress"],
)
def test_what_names_no_interface_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_target(text)


def test_a_process_has_its_own_namespace() -> None:
    place = find(parse_target(f"pid:{os.getpid()}/lo"))
    assert Path(place.path).stat().st_ino == Path("/proc/self/ns/net").stat().st_ino
    assert find(parse_target("lo")).words == "this machine"


@pytest.mark.parametrize(
    "place", ["pid:4194999", "pid:x", "nowhere", "container:tt-no", "pod:tt-no"]
)
def test_what_is_not_there_is_refused(place: str) -> None:
    with pytest.raises(InputError, match=place.partition(":")[2] or place):
        find(parse_target(f"{place}/eth0"))


@pytest.mark.parametrize("name", ["-x", "a b/../c"])
def test_names_are_no_options_and_no_paths(name: str) -> None:
    for kind in ("container", "pod"):
        with pytest.raises(InputError):
            PLACES[kind][1](name)


def test_a_container_of_two_programs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each of them states it in its own folder."""
    monkeypatch.setattr(interfaces, "ASKED", {})
    states = {}
    for program, pid in (("crun", os.getpid()), ("runc", os.getppid())):
        (tmp_path / program / "web").mkdir(parents=True)
        (tmp_path / program / "web" / "state").write_text(f'{{"pid": {pid}}}')
        states[program] = (f"{tmp_path}/{program}/{{name}}/state", ("pid",))
    monkeypatch.setattr(interfaces, "STATES", states)
    with pytest.raises(InputError, match="crun and runc each run one"):
        PLACES["container"][1]("web")
    del states["runc"]
    found = PLACES["container"][1]("web")
    assert (found.path, found.virtualization) == (f"/proc/{os.getpid()}/ns/net", "container")
    (tmp_path / "crun" / "web" / "state").write_text("no JSON")
    with pytest.raises(InputError, match="none of this name runs here"):
        PLACES["container"][1]("web")
