"""An experiment of others, to be made here: how large, and what it would run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.experiment.scales import CHOICE, SECTION
from tailtap.records.document import load

COMMANDS = ("command", "arguments")
"""Options of forwarders that are run."""


def smallest(path: Path, overrides: Sequence[str], *, on_testbed: bool = False) -> list[str]:
    """The overrides that make the experiment at `path` take the least time.

    The scale that sends packets for the shortest time, all runs together, or none where that is how
    the file stands. Raises `InputError` as `read_experiment` does.
    """
    scales = load(path).data.get(SECTION)
    names = list(scales) if isinstance(scales, Mapping) else []
    choices = [list(overrides), *([f"{CHOICE}={name}", *overrides] for name in names)]
    return min(choices, key=lambda one: _seconds(read_experiment(path, one, on_testbed=on_testbed)))


def _seconds(checked: CheckedExperiment) -> float:
    return checked.repeat * sum(experiment.seconds for _, experiment in checked.combinations)


def commands_of(checked: CheckedExperiment) -> list[str]:
    """What an experiment runs besides programs that tailtap knows: commands, and images."""
    return list(dict.fromkeys(_commands(checked)))


def _commands(checked: CheckedExperiment) -> Iterator[str]:
    for _, experiment in checked.combinations:
        for event in experiment.events:
            yield f"events: {' '.join(event.run)}"
        if experiment.traffic.external is not None:
            yield f"traffic.external.command: {experiment.traffic.external.command}"
        for member in experiment.dut.members:
            for name in COMMANDS:
                if name in member.dut.options:
                    yield f"dut.options.{name}: {member.dut.options[name]}"
            for name in ("image", "root"):
                if value := member.dut.given(name):
                    yield f"dut.{name}: {value}"
