"""Damaged files on every reader: a few cases each; `make fuzz` tries many."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tailtap.base.errors import MachineError
from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.reader import Case, Many, Reader
from tests.fuzz.readers import READERS, write_runs

CASES = 3 if "CI" in os.environ else 10
"""Of each reader: ten of all take a minute of one core."""
BY_NAME = {reader.name: reader for reader in READERS}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Reader], Path]:
    """The undamaged files of a reader, made once."""

    @cache
    def made(name: str) -> Path:
        folder = tmp_path_factory.mktemp("base")
        BY_NAME[name].build(folder)
        return folder

    return lambda reader: made(reader.name)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_files_are_refused_or_read(base: Callable[[Reader], Path], reader: Reader) -> None:
    try:
        reader.beside()
    except MachineError as lacking:
        pytest.skip(str(lacking))
    outcomes = [Case(reader, number).tried(base(reader)) for number in range(CASES)]
    assert [failure for _, failure in outcomes if failure] == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_what_is_decoded_in_this_process(decoder: Decoder) -> None:
    outcomes = [decoder.tried(number) for number in range(50 * CASES)]
    assert [failure for _, failure in outcomes if failure] == []


def test_what_fails_among_many_is_told(tmp_path: Path) -> None:
    command = ("export", "{input}", "--to", "hgrm", "--out", "{out}/../elsewhere")
    reader = Reader("astray", write_runs, ("experiment.yaml",), (command,))
    reader.build(tmp_path)
    many = Many()
    for number in range(2):
        outcome, failure = many.tried(Case(reader, number), tmp_path)
        assert outcome == "failed" and failure.endswith("wrote elsewhere"), failure
