"""An experiment of others, to be made here: how large, and what it would run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.base.document import load
from tailtap.experiment.combinations import CHOICE, SECTION
from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.experiment.tuning import NONE
from tailtap.lab.platforms import PLATFORMS, declaring

OPTIONS = ("command", "arguments", "rules", "huge_pages")
"""Options of forwarders that are run, name files, or take memory of the machine."""
WORD = re.compile(r"[\w-]*|[0-9.]+ ?[\w/]+")
"""A text that is no more than a choice or a quantity."""
HARMLESS = ("memory", "cgroup")
"""Keys of platforms that take nothing of the machine for long."""


def smallest(path: Path, overrides: Sequence[str], *, on_testbed: bool = False) -> list[str]:
    """The overrides that make the experiment at `path` take the least time.

    The scale that sends packets for the shortest time, all runs together, or none where that is how
    the file stands. Raises `InputError` as `read_experiment` does.
    """
    scales = load(path).data.get(SECTION)
    names = list(scales) if isinstance(scales, Mapping) else []
    choices = [list(overrides), *([f"{CHOICE}={name}", *overrides] for name in names)]
    return min(
        choices,
        key=lambda one: _seconds(read_experiment(path, one, on_testbed=on_testbed, named=False)),
    )


def _seconds(checked: CheckedExperiment) -> float:
    return checked.repeat * sum(experiment.seconds for _, experiment in checked.combinations)


def demands_of(checked: CheckedExperiment) -> list[str]:
    """What an experiment runs, reads and takes of the machine besides what every one does."""
    return list(dict.fromkeys(_demands(checked)))


def _demands(checked: CheckedExperiment) -> Iterator[str]:
    for _, experiment in checked.combinations:
        for event in experiment.events:
            yield f"events: {' '.join(event.run)}"
        if experiment.traffic.external is not None:
            yield f"traffic.external.command: {experiment.traffic.external.command}"
        if experiment.tap.ports is not None:
            yield f"tap.ports: {', '.join(experiment.tap.ports)}"
        for member in experiment.dut.members:
            dut = member.dut
            for name, value in dut.options.items():
                if name in OPTIONS or not all(map(WORD.fullmatch, _texts(value))):
                    yield f"dut.options.{name}: {value}"
            for name, kinds in declaring().items():
                default = PLATFORMS[kinds[0]].Options.model_fields[name].get_default()
                value = dut.given(name)
                if name not in HARMLESS and value not in (None, default):
                    yield f"dut.{name}: {_words(value)}"
            if dut.tuning != NONE:
                yield f"dut.tuning: {_words(dut.tuning)}"
            if not isinstance(dut.over, str):
                yield f"dut.over: {_words(dut.over)}"


def _texts(value: object) -> Iterator[str]:
    inside = value.values() if isinstance(value, Mapping) else value
    if isinstance(inside, str) or not isinstance(inside, Iterable):
        yield str(inside)
    else:
        for one in inside:
            yield from _texts(one)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
