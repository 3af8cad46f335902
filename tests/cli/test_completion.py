"""What real shells offer after Tab, asked in real folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest
from program import TAILTAP, one_line_error, tailtap

from tailtap.analysis.verdict.profiles import PROFILES
from tailtap.cli import completing
from tailtap.cli.registry import listed
from tailtap.lab.generators.own import BACK_ENDS
from tailtap.lab.platforms import PLATFORMS
from tailtap.measure.search import METHODS
from tailtap.results.exporters import EXPORTERS

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
            "WORDS": line.replace("=", " = "),
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
    """A folder with two experiments, a folder of something else, and files."""
    place = tmp_path_factory.mktemp("place")
    for name in ("first", "second"):
        run = place / name / "runs" / "001-wire-r1"
        run.mkdir(parents=True)
        (place / name / "plan.json").touch()
        (run / "run.json").touch()
    (place / "fiddle").mkdir()
    for name in ("a.yaml", "in.pcap", "in.pcap.zst", "notes.txt"):
        (place / name).touch()
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


def test_folders_with_results_are_offered(offered: Ask) -> None:
    for command in ("report", "verdict", "model", "compare", "export", "evaluate second"):
        folders = set(offered(f"tailtap {command} "))
        assert ("first" in folders) == (command != "evaluate second"), command
        assert not folders & {"fiddle", "notes.txt"}, command
    assert offered("tailtap report fi") == ["first"]
    assert offered("tailtap verdict first second/") == ["second/runs/001-wire-r1"]
    assert offered("tailtap verdict first/runs/0") == ["first/runs/001-wire-r1"]


def test_files_are_offered(offered: Ask) -> None:
    assert offered("tailtap run ") == ["a.yaml"]
    assert set(offered("tailtap evaluate in.pcap ")) == {"in.pcap", "in.pcap.zst"}


def test_names_that_options_take_are_offered(offered: Ask) -> None:
    assert set(offered("tailtap verdict --profile ")) == set(PROFILES)
    assert set(offered("tailtap report first --runs ")) == {"own", "imported", "001-wire-r1"}
    assert "dut.forwarder=kernel-route" in offered("tailtap run a.yaml --set dut.f")


def test_bash_takes_up_after_an_equals_sign(folder: Path) -> None:
    """Bash puts the answer in the place of what follows the sign."""
    assert set(ask("bash", "tailtap run --set dut.platform=", folder)) == set(PLATFORMS)
    assert ask("bash", "tailtap run a.yaml --set dut.platform=w", folder) == ["wire"]
    assert ask("bash", "tailtap compare a=first b=se", folder) == ["second"]
    assert ask("bash", "tailtap search --method=b", folder) == ["binary"]


def test_elsewhere_the_shell_lists_its_own_files(folder: Path) -> None:
    assert ask("bash", "tailtap report fid", folder) == ["the shell's own: dirnames"]
    assert ask("bash", "tailtap run fid", folder) == ["the shell's own: default"]


def test_names_known_beforehand_are_those_of_the_registries() -> None:
    """They are spelled in the commands, as registries take long to import."""
    for command, option, known in (
        ("search", "--method", METHODS),
        ("generate", "--generator", BACK_ENDS),
        ("export", "--to", [name.replace("postgresql", "postgresql://") for name in EXPORTERS]),
    ):
        assert offered_for(command, option) == list(known)


def offered_for(command: str, option: str) -> Sequence[str]:
    from tailtap.cli.program import program

    found = program.get_command(click.Context(program), command)
    assert found is not None
    (parameter,) = (each for each in found.params if option in each.opts)
    with click.Context(found) as context:
        return [item.value for item in parameter.shell_complete(context, "")]


def test_folders_that_cannot_be_read_offer_nothing() -> None:
    context, parameter = click.Context(click.Command("x")), click.Argument(["x"])
    for word in ("missing/", "~nobody-is-called-this/", "/proc/self/mem/"):
        (item,) = completing.result_folders(context, parameter, word)
        assert (item.type, item.value) == ("dir", word)


def test_other_shells_are_refused_in_one_line() -> None:
    assert "bash" in one_line_error(tailtap("completion", "tcsh"), 2)
