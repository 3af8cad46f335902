"""What frames that were heard say of cables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailtap.measure.testbed.check import Heard, judge
from tailtap.measure.testbed.model import Cable, Socket
from tailtap.records.printed import Answer

A, B, C, D, S = (Socket(*text.split(":")) for text in ("a:0", "b:0", "c:0", "d:0", "s:0"))
PLAIN = Cable.model_validate({"ends": ["a:0", "b:0"]})
SPLIT = Cable.model_validate({"ends": ["a:0", "b:0"], "splitter": "s:0"})


def heard(**pairs: str) -> Heard:
    """By the host that sends: those that hear it, by their letters."""
    found = {
        name: frozenset(Socket(letter, "0") for letter in text) for name, text in pairs.items()
    }
    return {Socket(name, "0"): found.get(name, frozenset()) for name in "abcds"}


@pytest.mark.parametrize(
    ("cable", "pairs", "down", "answer", "said"),
    [
        (PLAIN, {"a": "b", "b": "a"}, set(), "ok", ""),
        (PLAIN, {"a": "c", "b": "d"}, set(), "wrong", "what a:0 sends comes to c:0"),
        (PLAIN, {"a": "b"}, set(), "dead", "what b:0 sends comes to nobody"),
        (PLAIN, {}, {A, B}, "dead", "what a:0 sends comes to nobody; no link at a:0 and b:0"),
        (SPLIT, {"a": "bs", "b": "a"}, set(), "ok", ""),
        (SPLIT, {"a": "b", "b": "as"}, set(), "ok", ""),
        (SPLIT, {"a": "bd", "b": "a"}, set(), "wrong", "s:0 sees nothing of this cable; d:0 does"),
        (SPLIT, {"a": "b", "b": "a"}, set(), "wrong", "s:0 sees nothing of this cable"),
        (SPLIT, {"a": "s", "b": "a"}, set(), "dead", "what a:0 sends comes to nobody"),
    ],
)
def test_the_answers(
    cable: Cable, pairs: Mapping[str, str], down: set[Socket], answer: Answer, said: str
) -> None:
    found = judge(cable, heard(**pairs), down, set("abcds"))
    assert (found.answer, found.said) == (answer, said)


def test_a_host_that_is_not_there_leaves_its_cables_open() -> None:
    found = judge(SPLIT, heard(a="b", b="a"), set(), {"a", "b"})
    assert (found.answer, found.said) == ("unknown", "s could not be asked")
