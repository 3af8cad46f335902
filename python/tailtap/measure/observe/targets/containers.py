"""Containers, whoever runs them: the network namespace of the first process of each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.base.errors import InputError, MachineError, TailtapError
from tailtap.base.foreign import parse_json
from tailtap.host.containers import engines
from tailtap.measure.observe.targets.kind import Place
from tailtap.remote.local import SYSTEM_PATH, LocalHost

STATES = {
    "crun": ("/run/crun/{name}/status", ("pid",)),
    "runc": ("/run/runc/{name}/state.json", ("init_process_pid",)),
}
"""Where programs without a command for it keep the state of a container, and what is its number
there."""
CRI = ("--output", "go-template", "--template", "{{.info.pid}}")
_STATE = ("--format", "{{.State.Pid}}")


class Containers:
    """A container by its name."""

    form = "container:NAME"
    words = "a container of Podman, Docker, containerd, CRI-O, LXC, crun or runc, by its name or id"

    def find(self, name: str) -> Place:
        """That of the container's first process. Raises `InputError`, also for a name twice."""
        found = dict(_running(name))
        if not found:
            asked = ", ".join(dict.fromkeys(_asked()))
            raise InputError(f"container:{name}: none of this name runs here; asked: {asked}")
        if len(set(found.values())) > 1:
            raise InputError(
                f"container:{name}: {' and '.join(found)} each run one: say which by pid:NUMBER, "
                f"{', '.join(f'{pid} of {program}' for program, pid in found.items())}"
            )
        [(program, pid), *_] = found.items()
        return Place(f"/proc/{pid}/ns/net", f"container {name} of {program}", "container")


def _running(name: str) -> Iterator[tuple[str, int]]:
    """Who runs a container of the name, and the number of its first process."""
    if not name or "/" in name or name.startswith("-"):
        raise InputError(f"container:{name}: this is no name of a container")
    for program, ask in ASKED.items():
        if is_there(program) and (pid := ask(name)):
            yield program, pid
    for program, (place, path) in STATES.items():
        if pid := _stated(Path(place.format(name=name)), path):
            yield program, pid
    try:
        yield "tailtap", engines.pid_of(name)
    except MachineError:
        return


def _asked() -> Iterator[str]:
    yield from (program for program in ASKED if is_there(program))
    yield from STATES


def is_there(program: str) -> bool:
    """Whether a program is installed."""
    return shutil.which(program, path=SYSTEM_PATH) is not None


def number(command: Sequence[str]) -> int | None:
    """What a command prints, where that is the number of a process."""
    told = said(command)
    return int(told) if told.isascii() and told.isdecimal() and int(told) > 0 else None


def said(command: Sequence[str]) -> str:
    """What a command prints; nothing where it fails."""
    try:
        done = LocalHost().run(command, check=False)
    except TailtapError:  # it hangs
        return ""
    return done.stdout.strip() if done.status == 0 else ""


def _inspected(program: str) -> Callable[[str], int | None]:
    return lambda name: number([program, "container", "inspect", *_STATE, name])


def _of_lxc(name: str) -> int | None:
    return number(["lxc-info", "--name", name, "--pid", "--no-humanize"])


def _of_cri(name: str) -> int | None:
    [container, *_] = said(["crictl", "ps", "--quiet", "--name", name]).split() or [name]
    return number(["crictl", "inspect", *CRI, container])


ASKED: Mapping[str, Callable[[str], int | None]] = {
    "podman": _inspected("podman"),
    "docker": _inspected("docker"),
    "nerdctl": _inspected("nerdctl"),
    "crictl": _of_cri,
    "lxc-info": _of_lxc,
}
"""By program what tells the number of a container's first process."""


def _stated(path: Path, keys: Sequence[str]) -> int | None:
    """A number in the state that a program keeps in a file of JSON."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        for key in keys:
            found = found[key]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    is_running = type(found) is int and Path(f"/proc/{found}/ns/net").exists()
    return found if is_running else None
