"""An experiment file, and what is said of its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import InputError
from tailtap.experiment.reading import CheckedExperiment, read_experiment

FIVE_LINES = """\
name: five-lines
traffic:
  rate: 50 kpkt/s
  duration: 2 s
repeat: 2
"""


def check(tmp_path: Path, text: str, *overrides: str) -> CheckedExperiment:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return read_experiment(path, overrides)


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        check(tmp_path, text, *overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path), "")
