"""What real shells offer after Tab, asked in real folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from program import TAILTAP, one_line_error, tailtap

from tailtap.analysis.evaluation.directions import DIRECTIONS
from tailtap.analysis.evaluation.settings import NANOSECONDS
from tailtap.analysis.verdict.requirement import PROFILES
from tailtap.cli.program import find, listed
from tailtap.host.loaders import LOADERS
from tailtap.host.tuning.exports import FORMATS
from tailtap.lab.generators.own import BACK_ENDS
from tailtap.measure.search.methods import METHODS

Ask = Callable[[str], list[str]]

BASH = """
source <(tailtap completion bash)
read -r -a COMP_WORDS <<< "$WORDS"
[[ $LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
compopt() { echo "the shell's own: ${*: -1}"; }
_tailtap_completion tailtap
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""As readline calls the function, with words split where bash splits them."""

ZSH = """
compdef() { :; }
compadd() { print -l -- "${(P@)@[-1]}" }
_describe() { print -l -- "${(P@)@[-2]%%:*}" }
_path_files() { print -- "the shell's own: $*" }
eval "$(tailtap completion zsh)"
words=("${(@s: :)LINE}")
CURRENT=${#words}
_tailtap_completion
"""
"""As the completion system calls the function; what it hands over is printed."""

FISH = """
tailtap completion fish | source
complete --do-complete "$LINE"
"""
"""What it offers, each with a tab and an explanation where there is one."""


def ask(shell: str, line: str, folder: Path) -> list[str]:
    """What `shell` offers for the last word of `line`."""
    program = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
    quick = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quick, "-c", program],
        cwd=folder,
        env={
            "PATH": f"{TAILTAP.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LINE": line,
            "WORDS": line,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return [line.partition("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment file."""
    place = tmp_path_factory.mktemp("place")
    (place / "a.yaml").touch()
    return place


@pytest.fixture(params=["bash", "zsh", "fish"])
def offered(request: pytest.FixtureRequest, folder: Path) -> Ask:
    """Asks a shell."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here: apt install {shell}")
    return lambda line: ask(shell, line, folder)


def test_commands_and_options_are_offered(offered: Ask) -> None:
    assert set(offered("tailtap ")) == set(listed())
    assert set(offered("tailtap host a")) == {"audit", "apply"}
    assert offered("tailtap host audit --ro") == ["--role"]
    assert offered("tailtap host apply trans") == ["transparent-huge-pages"]
    assert set(offered("tailtap host audit --role vm")) == {"vm-host", "vm-guest"}
    assert offered("tailtap ver") == ["verdict"]
    assert set(offered("tailtap clean --")) == {"--all", "--dry-run", "--json", "--quiet", "--help"}


def test_names_that_options_take_are_offered(offered: Ask) -> None:
    assert set(offered("tailtap verdict --profile ")) == set(PROFILES)
    assert offered("tailtap search a.yaml --method b") == ["binary"]


def test_the_shell_lists_its_own_files(folder: Path) -> None:
    assert ask("bash", "tailtap run a.y", folder) == ["the shell's own: default"]


def test_choices_are_those_of_the_registries() -> None:
    """They are spelled in the commands, as registries take long to import."""
    for command, option, known in (
        ("search", "--method", METHODS),
        ("generate", "--generator", BACK_ENDS),
        ("host export", "--format", FORMATS),
        ("host bootline", "--loader", LOADERS),
        ("evaluate", "--direction", DIRECTIONS),
        ("evaluate", "--nanoseconds", NANOSECONDS),
    ):
        found = find(command)
        assert found is not None
        (parameter,) = (one for one in found.params if option in one.opts)
        assert isinstance(parameter.type, click.Choice)
        assert list(parameter.type.choices) == list(known)


def test_other_shells_are_refused_in_one_line() -> None:
    assert "bash" in one_line_error(tailtap("completion", "tcsh"), 2)
