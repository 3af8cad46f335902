"""YAML that Python cannot make values of is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.document import MAX_DEPTH, load, parse, parse_value
from tailtap.base.errors import InputError


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0x" + "f" * 6000, "e.yaml:2: b: a number has 20 digits at most"),
        ("1" * 21, "e.yaml:2: b: a number has 20 digits at most"),
        ("[" * 3000, "e.yaml:2: more than 50 lists and mappings in a row"),
        ("[" * 3000 + "]" * 3000, "e.yaml:2: more than 50 lists and mappings in a row"),
    ],
)
def test_what_nobody_means_is_refused_with_its_line(value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"name: a\nb: {value}\n", "e.yaml")
    assert str(caught.value) == said


def test_the_deepest_and_the_largest() -> None:
    lists = MAX_DEPTH - 1  # they lie in a mapping
    assert parse_value("[" * lists + "]" * lists, "--set") is not None
    assert parse_value("-9223372036854775808", "--set") == -(2**63)


def test_a_path_of_too_many_keys_is_refused() -> None:
    document = parse("name: a\n", "e.yaml")
    with pytest.raises(InputError, match="--set x: a key path has 50 parts at most"):
        document.with_value(("a",) * 3000, 1, "--set x")


def test_a_file_without_an_end_is_no_experiment() -> None:
    with pytest.raises(InputError, match="more than 1 MB"):
        load(Path("/dev/zero"), named=True)
    with pytest.raises(InputError, match="no regular file"):
        load(Path("/dev/zero"))


@pytest.mark.parametrize("text", ['name: "\\ud800"', '"\\udfff": x', 'name: "a\\0b"'])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^x.yaml:2: .* has a zero byte or half a character"):
        parse(f"a: 1\n{text}\n", "x.yaml")
