"""The documentation, manual pages, completion and schemas say what the program does."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click
import pytest
from experiment_folders import write_run
from forms import SCHEMAS, fits
from jsonschema import Draft202012Validator
from program import TAILTAP, answer, in_process
from read_pages import run, steps

from tailtap.analysis.evaluation.evaluate import DIRECTIONS, NANOSECONDS
from tailtap.analysis.figures.kinds import KINDS
from tailtap.analysis.verdict.requirement import PROFILES
from tailtap.cli.kinds import page as kinds_page
from tailtap.cli.program import COMMANDS, GROUPS, find, listed, program
from tailtap.cli.reference import manuals, reference
from tailtap.host.loaders import LOADERS
from tailtap.host.tuning.exports import FORMATS
from tailtap.host.tuning.page import page as host_page
from tailtap.lab.generators.own import BACK_ENDS
from tailtap.measure.search.methods import METHODS
from tailtap.records.schemas import RECORDS, file_of, schema
from tailtap.records.schemas import page as records_page
from tailtap.records.schemas import write as write_schemas
from tailtap.show.sections.causes import COLUMNS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING"))]
FIGURES = ROOT / "docs/howto/figures.md"
NAMES = ["", *GROUPS, *COMMANDS]
MANUALS = dict(manuals())
WIDE = 1_000
"""Columns in which no sentence is folded."""


def loaded() -> dict[str, click.Command]:
    found = {name: find(name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def commands() -> dict[str, set[str]]:
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in loaded().items()
    }


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("commands", reference),
        ("kinds", kinds_page),
        ("host", host_page),
        ("records", records_page),
    ],
)
def test_generated_pages_are_fresh(name: str, made: object) -> None:
    assert callable(made)
    assert (ROOT / f"docs/reference/{name}.md").read_text() == made(), "run 'make docs'"


def test_every_command_is_listed_with_help_and_the_common_options() -> None:
    made = sum(
        path.read_text().count("\n@command(")
        for path in (ROOT / "python/tailtap/cli").rglob("*.py")
    )
    assert len(loaded()) == len(COMMANDS) == made
    for name, command in loaded().items():
        assert commands()[name] >= {"--json", "--quiet"} and command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def typed() -> Iterator[tuple[str, str]]:
    """Each line of a code block that is typed, by page."""
    for page in PAGES:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M):
            lines = block.replace("\\\n", " ").splitlines()
            yield from ((page.name, line) for line in lines if language in ("", "sh", "console"))


def test_commands_shown_in_the_docs_exist() -> None:
    """Every `tailtap …` line of a code block names a command and options that exist."""
    known, groups = commands(), "|".join(GROUPS)
    begin = re.compile(rf"^\$? ?(?:sudo )?(?:\S*/)?tailtap ((?:(?:{groups}) )?[a-z]+)(.*)")
    for page, line in typed():
        if match := begin.match(line):
            assert match[1] in known, (page, line)
            options = set(re.findall(r"(?<!\S)--[a-z-]+", match[2]))
            assert options <= known[match[1]] | {"--help"}, (page, line)


def runs_of_examples() -> Iterator[tuple[str, list[str]]]:
    """The runs of shipped experiments that pages show, as words; by page."""
    for page, line in typed():
        if re.match(r"^\$? ?(sudo )?\S*tailtap run examples/", line):
            words = shlex.split(line, comments=True)
            yield page, words[words.index("run") :]


def test_runs_shown_in_the_docs_can_be_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example is there, and takes the values that the page sets; a loop file is pos's."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "loop-vars.yml").write_text("packetrate: [10000, 50000]\nrepeat: [0, 1, 2]\n")
    monkeypatch.chdir(tmp_path)
    shown = list(runs_of_examples())
    assert shown
    for name, words in shown:
        kept = [word for word in words if word not in ("--check", "--resume")]
        done = in_process(*kept, "--check", "--json")
        assert done.returncode in (0, 3), (name, words, done.stderr)


def anchors(page: Path) -> set[str]:
    """What links can name in a page: its headings and named places."""
    text = page.read_text()
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    slugs = {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}
    return slugs | set(re.findall(r'<a name="([^"]+)"', text))


def test_links_between_pages_lead_somewhere() -> None:
    for page in LINKING:
        for target, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            if "://" not in target:
                there = page.parent / target if target else page
                assert there.exists(), f"{page.name}: {target}"
                assert not place or place in anchors(there), f"{page.name}: {target}#{place}"


def test_pages_that_the_program_names_exist() -> None:
    """Help texts, errors, docstrings and examples."""
    places = [
        *(ROOT / "python").rglob("*.py"),
        *(ROOT / "examples").rglob("*.yaml"),
        *(ROOT / "benches").rglob("*.py"),
        ROOT / "Makefile",
    ]
    for place in places:
        for named in re.findall(r"\bdocs/[\w/-]+\.(?:md|json|png)", place.read_text()):
            assert (ROOT / named).exists(), f"{place.name}: {named}"


def test_every_page_is_in_the_index_and_says_for_whom_it_is() -> None:
    """docs/README.md links to each page, and both first pages stay short."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (docs / "README.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    assert pages <= linked
    for first in (ROOT / "README.md", docs / "README.md"):
        assert len(first.read_text().splitlines()) < 150
    for page in docs.rglob("*.md"):
        title, _, begins, *_ = page.read_text().splitlines()
        assert title.startswith("# ") and begins.startswith("For "), page


@pytest.mark.timeout(300)
def test_the_page_of_figures_draws_what_it_says(tmp_path: Path) -> None:
    """Typed as it stands, on made-up results of the tutorial's form."""
    text = FIGURES.read_text(encoding="utf-8")
    for number, (platform, rate) in enumerate(product(("wire", "bare-metal"), (10, 50)), 1):
        values = {"dut.platform": platform, "traffic.rate": f"{rate} kpkt/s"}
        write_run(tmp_path / "load", number, values, packets=500, rate=rate * 1000)
    files = re.findall(r"Save this as\s`([\w.]+)`", text)
    for name, content in zip(
        files, re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M), strict=True
    ):
        (tmp_path / name).write_text(content)
    path = f"export PATH={Path(sys.executable).parent}:$PATH"
    done = run(steps(text), ["bash"], tmp_path, path, {"report": "--quiet"}, 280)
    assert [status for status, _ in done] == [0] * 3, done
    figures = tmp_path / "load/report/figures"
    assert {path.suffix for path in figures.glob("figure-1.*")} == {".png", ".svg", ".pdf", ".csv"}
    assert "The device and the floor" in (tmp_path / "load/report/index.html").read_text()
    ratios = list(csv.DictReader((tmp_path / "together/figures/asked-hdr-table.csv").open()))
    assert ratios and {row["ratio"] for row in ratios} == {"1.0"}
    [table] = re.findall(r"^\| kind \|.*?\n\n", text, re.S | re.M)
    first = "".join(row.split("|")[1] for row in table.strip().splitlines())
    assert sorted(re.findall(r"`([a-z-]+)`", first)) == sorted(KINDS)


def manual_of(name: str) -> str:
    return f"tailtap {name}".strip().replace(" ", "-") + ".1"


def help_of(name: str) -> str:
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        if not name:
            return program.get_help(root)
        command = find(name)
        assert command is not None
        with command.make_context(name, [], parent=root, resilient_parsing=True) as context:
            context.terminal_width = context.max_content_width = WIDE
            return command.get_help(context)


def test_the_help_of_explain_says_what_its_columns_mean() -> None:
    help = help_of("explain")
    assert [one.heading for one in COLUMNS if not re.search(rf"\b{one.heading}\b", help)] == []


def test_each_command_and_group_has_a_manual_page() -> None:
    assert list(MANUALS) == [manual_of(name) for name in NAMES]


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_manual_page_is_sound_and_shows_every_word_of_the_help(name: str, tmp_path: Path) -> None:
    page = tmp_path / manual_of(name)
    page.write_text(MANUALS[page.name])
    subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], check=True)
    command = f"mandoc -T utf8 -O width={WIDE} '{page}' | col -bx"  # bold letters are struck twice
    shown = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True)
    said = {word.lower() for word in shown.stdout.split()}
    words = {"usage:", *said, *(f"{word}:" for word in said)}  # a heading has no colon
    assert [word for word in help_of(name).split() if word.lower() not in words] == []


BASH = """
source <(tailtap completion bash)
read -r -a COMP_WORDS <<< "$LINE"
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
SHELLS = {"bash": ("--norc", BASH), "zsh": ("-f", ZSH), "fish": ("--no-config", FISH)}


@pytest.mark.parametrize("shell", SHELLS)
def test_what_real_shells_offer_after_tab(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here: apt install {shell}")
    (tmp_path / "a.yaml").touch()
    quick, script = SHELLS[shell]
    path = f"{TAILTAP.parent}:{os.environ['PATH']}"

    def offered(line: str) -> set[str]:
        environment = {"PATH": path, "HOME": str(tmp_path), "LINE": line}
        done = subprocess.run(
            [shell, quick, "-c", script], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done
        return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}

    assert offered("tailtap ") == set(listed())
    assert offered("tailtap host a") == {"audit", "apply"}
    assert offered("tailtap host audit --ro") == {"--role"}
    assert offered("tailtap host apply trans") == {"transparent-huge-pages"}
    assert offered("tailtap host audit --role vm") == {"vm-host", "vm-guest"}
    assert offered("tailtap clean --") == {"--all", "--dry-run", "--json", "--quiet", "--help"}
    assert offered("tailtap verdict --profile ") == set(PROFILES)
    assert offered("tailtap search a.yaml --method b") == {"binary"}
    if shell == "bash":
        assert offered("tailtap run a.y") == {"the shell's own: default"}


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


STORED = ROOT / "tests/unit/analysis/runs/stored/experiment"
"""What `tailtap run` left once."""


def test_each_record_has_a_schema_that_is_valid(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert files.keys() == {file_of(kind) for kind in RECORDS}
    for one in files.values():
        Draft202012Validator.check_schema(one)
    named = {
        name
        for path in (ROOT / "python").rglob("*.py")
        for name in re.findall(r"tailtap\.[a-z-]+/[0-9]+", path.read_text("utf-8"))
    }
    assert named == set(SCHEMAS)
    parts: dict[str, object] = {}
    for kind in RECORDS:
        for name, part in schema(kind)["$defs"].items():
            assert parts.setdefault(name, part) == part, name
    for path in STORED.rglob("*.json"):
        fits(json.loads(path.read_text()))


def test_a_schema_refuses_what_its_record_is_not() -> None:
    content = answer("completion", "bash")
    del content["script"]
    with pytest.raises(Exception, match="'script' is a required property"):
        fits(content)


@pytest.mark.parametrize(
    "command",
    [
        "clean --dry-run",
        "host audit",
        "host bootline --cpus 1",
        "host bootline --remove --dry-run",
        "host apply --dry-run stat-interval",
        "host export --format sysctl",
    ],
)
def test_what_is_said_of_this_machine(command: str) -> None:
    answer(*command.split(), status=None)
