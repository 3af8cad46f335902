"""Pages of the documentation as a newcomer uses them: the files that they print, their commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)
TAPPING = "until grep -qs ^tapping {} || ! kill -0 $!; do sleep 0.1; done"
"""Waits in a shell for the tap in its background, however long it takes to begin; by its output."""
_STATUS = re.compile(r"#.*\bexit status (\d(?: or \d)*)")


@dataclass(frozen=True)
class Step:
    """One command of a page."""

    command: str
    statuses: Sequence[int]
    """What it may end with; the page says so behind it (``# … exit status 0 or 1``) if not 0."""
    shown: str
    """What the page shows of its output; empty where it shows nothing."""


def files(text: str) -> Iterator[tuple[str, str]]:
    """The experiment files that a page says to save, by their names."""
    for found in _BLOCK.finditer(text):
        content = yaml.safe_load(found[2]) if found[1] == "yaml" else None
        if content and "name" in content:
            name = f"{content['name']}.yaml"
            assert f"`{name}`" in text[: found.start()], f"the page does not say to save {name}"
            yield name, found[2]


def steps(*pages: str) -> list[Step]:
    """The commands of pages, in their order; what one repeats of another is not done again."""
    every: dict[str, Step] = {}
    for language, block in _BLOCK.findall("\n".join(pages)):
        if language == "sh":
            parts = block.replace("\\\n", " ").splitlines()
        else:
            parts = re.split(r"^\$ ", block, flags=re.M)[1:] if language == "console" else []
        for line, _, shown in (part.partition("\n") for part in parts):
            said = _STATUS.search(line)
            statuses = [int(one) for one in said[1].split(" or ")] if said else [0]
            every.setdefault(line.partition("  #")[0].strip(), Step(line, statuses, shown))
    return list(every.values())


def run(
    every: Sequence[Step],
    shell: Sequence[str],
    folder: Path,
    before: str,
    more: Mapping[str, str],
    timeout: float,
) -> list[tuple[int, str]]:
    """Run the commands in one `shell` in `folder`, after `before`; status and output of each.

    `more` has options that are added to the commands of tailtap of a name.
    """
    script = [before]
    for number, step in enumerate(every):
        command = step.command
        for name, options in more.items():
            if re.search(rf"tailtap {name}\b", command):
                command = re.sub(r"\s+#.*|$", f" {options}", command, count=1)
        script += [f"exec > {number}.out 2>&1", command, f"echo $? > {number}.status"]
        script += [TAPPING.format(f"{number}.out")] * step.command.endswith("&")
    (folder / "script").write_text("\n".join([f"cd {folder}", *script]) + "\n")
    running = subprocess.Popen([*shell, str(folder / "script")], start_new_session=True)
    try:
        running.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGTERM)  # a measurement puts the machine back
        running.wait()
        raise
    return [
        (int((folder / f"{number}.status").read_text()), (folder / f"{number}.out").read_text())
        for number in range(len(every))
    ]
