"""What `tailtap observe` refuses before it looks at anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tailtap.base.errors import InputError
from tailtap.cli.program import program


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["eth0", "vm:x/eth1"], "an interface is in one of these places: NETNS, container:NAME"),
        (["eth0@both"], "names no interface"),
        (["eth0", "--look", "0 s"], "give a time above zero"),
        (["eth0", "--cpus", "1,1"], "--cpus '1,1' is no list of CPUs"),
        (["eth0", "--served", "hands"], "does not say by what packets are served"),
        (["eth0", "--served", "softirq", "--served", "task:1"], "each names its node"),
        (["eth0", "--sample", "1/3"], "3 is no power of two"),
        (["eth0", "--budget", "3 s"], "--budget: '3 s' is not a share"),
        (["eth0", "--for", "soon"], "--for: 'soon' is not a time"),
    ],
)
def test_wrong_words_are_told(words: list[str], said: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(program, ["observe", *words, "--out", str(out)])
    assert isinstance(done.exception, InputError), done.output
    assert said in str(done.exception)
    assert not out.exists()
