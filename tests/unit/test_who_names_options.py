"""Options of the command line are named by `cli`: below it a message says `option("late")`.

Found are texts that name an option of ours, which the parser lists. What is a word of its own in a
list is for a program that is started. Rust names no command either.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import click
import pytest

import tailtap
from tailtap.base.errors import InputError
from tailtap.base.options import command_line, naming_options, option, options, spelled
from tailtap.cli.naming import as_option
from tailtap.cli.program import find
from tailtap.cli.registry import COMMANDS

SOURCES = Path(tailtap.__file__).parent
WORD = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
LINE = re.compile(r"`(?:sudo )?tailtap ([a-z]+)(?: ([a-z]+))?")
"""A command of ours in a message."""
CRATES = SOURCES.parents[1] / "crates"
RUST = re.compile(
    r"""//[^\n]*|r(\#+)"(?P<raw>.*?)"\1|b?"(?P<text>(?:\\.|[^"\\])*)"|'(?:\\.|[^'\\])'""", re.DOTALL
)
"""What has quotes in Rust: a comment, a text as it is, a text, a character."""
ASKED = re.compile(r'\boption\(\s*"(\w+)"')
"""What a message of Rust calls by the name that it has for whoever asked."""
ALLOWED = {
    "lab/forwarders/external.py": "options of somebody's image",
    "lab/instruments/tracer/__init__.py": "starts `tailtap trace`",
    "lab/platforms/vm/initramfs.py": "starts cpio",
    "measure/observe/incidents.py": "starts `tailtap report`",
    "measure/observe/look.py": "starts `tailtap tap`",
    "measure/testbed/boot/grub.py": "a command of GRUB",
    "measure/testbed/image.py": "a script of the image",
    "measure/testbed/ssh.py": "starts `tailtap clean`",
    "records/warnings/imported.py": "options of other programs",
}


def declared(name: str) -> dict[str, str]:
    """The options of a command, each with the parameter that it gives."""
    command = find(name)
    assert command is not None
    return {
        text: str(one.name).rstrip("_")
        for one in command.params
        for text in (*one.opts, *one.secondary_opts)
        if text.startswith("--")
    }


OPTIONS = {name: declared(name) for name in COMMANDS}
GROUPS = {name.split()[0] for name in COMMANDS}
EVERY = {text: name for found in OPTIONS.values() for text, name in found.items()}


def _spoken(tree: ast.AST) -> Iterator[ast.Constant]:
    """The texts of a program but for docstrings and the words of lists."""
    silent = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            silent.add(node.value)
        elif isinstance(node, ast.List | ast.Tuple):
            words = (one.values[0] if isinstance(one, ast.JoinedStr) else one for one in node.elts)
            silent |= {one for one in words if isinstance(one, ast.Constant) and _alone(one)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
            yield node


def _alone(node: ast.Constant) -> bool:
    return isinstance(node.value, str) and bool(WORD.fullmatch(node.value.rstrip("=")))


def naming(source: str) -> Iterator[tuple[int, str]]:
    """The lines that name an option of ours, and the option."""
    for node in _spoken(ast.parse(source)):
        yield from ((node.lineno, word) for word in WORD.findall(str(node.value)) if word in EVERY)


def _sources() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES)
        if name.parts[0] != "cli":
            yield str(name), path.read_text()


def test_options_are_found() -> None:
    started = "def f():\n    '''--late'''\n    run(['--late', f'--at={x}'])\n"
    assert list(naming(f"{started}    fail(f'{{y}}: --late 1')\n")) == [(4, "--late")]
    assert list(naming("with naming('--late'):\n    fail('--unheard-of')\n")) == [(1, "--late")]


def test_nobody_below_cli_names_an_option() -> None:
    found = {name: named for name, source in _sources() if (named := list(naming(source)))}
    assert {name: named for name, named in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) == set(found), "an exception that nothing needs any more"


def naming_in_rust(source: str) -> Iterator[tuple[int, str]]:
    """The lines that name an option or a command of ours in a text, and what they name."""
    for found in RUST.finditer(source):
        text = found["raw"] or found["text"] or ""
        named = [word for word in WORD.findall(text) if word in EVERY]
        named += [
            f"tailtap {word}" for word in re.findall(r"\btailtap ([a-z]+)", text) if word in GROUPS
        ]
        yield from ((source.count("\n", 0, found.start()) + 1, word) for word in named)


def _crates() -> Iterator[tuple[str, str]]:
    assert CRATES.is_dir()
    for path in sorted(CRATES.rglob("src/**/*.rs")):
        yield str(path.relative_to(CRATES)), path.read_text()


def test_names_are_found_in_rust() -> None:
    told = '// "--late"\nlet a = \'"\'; let b = "see \\"--late\\"";\n'
    assert list(naming_in_rust(told)) == [(2, "--late")]
    said = '#[error("{0}: x, \\\n    --key y")]\nlet c = r#"`tailtap clean` "--at""#; // "--key"'
    assert list(naming_in_rust(said)) == [(1, "--key"), (3, "--at"), (3, "tailtap clean")]
    assert list(naming_in_rust('"what tailtap knows" "--unheard-of"')) == []


def test_no_text_of_rust_names_an_option_or_a_command() -> None:
    found = {name: named for name, text in _crates() if (named := list(naming_in_rust(text)))}
    assert found == {}


def test_what_rust_names_is_an_option() -> None:
    asked = [(name, word) for name, text in _crates() for word in ASKED.findall(text)]
    assert len(asked) > 40
    there = {parameter for found in OPTIONS.values() for parameter in found.values()}
    assert [row for row in asked if row[1] not in there] == []


def test_rust_calls_options_as_whoever_asked(tmp_path: Path) -> None:
    from tailtap.analysis.evaluation.evaluate import evaluate

    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(InputError, match=r"or give format mscap"):
        evaluate(picture, picture)
    with naming_options(spelled), pytest.raises(InputError, match=r"or give --format mscap"):
        evaluate(picture, picture)


def _asked(call: ast.Call) -> Iterator[tuple[str, Collection[str]]]:
    """What a call takes for a parameter or an option, and those that there are."""
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if called == "option" and isinstance(first, str):
        yield first, {name for found in OPTIONS.values() for name in found.values()}
    elif called == "spelled" and isinstance(first, str):
        yield spelled(first), EVERY
    elif called in ("command_line", "options"):
        there = OPTIONS[str(first)] if called == "command_line" else EVERY
        yield from ((spelled(one.arg), there) for one in call.keywords if one.arg)


def test_what_is_named_is_an_option() -> None:
    """Names of parameters are those of the commands, so that each becomes an option there."""
    asked = [
        (name, node.lineno, *one)
        for name, source in _sources()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for one in _asked(node)
    ]
    assert len(asked) > 150
    assert [row[:3] for row in asked if row[2] not in row[3]] == []


def test_commands_in_messages_exist() -> None:
    words = {
        (name, *found)
        for name, source in _sources()
        for node in _spoken(ast.parse(source))
        for found in LINE.findall(str(node.value))
    }
    assert len(words) > 20
    assert {row for row in words if row[1] not in GROUPS} == set()


def test_the_library_names_parameters() -> None:
    from tailtap.analysis.tail.peaks import parse_threshold

    with pytest.raises(InputError, match="give threshold a percentile"):
        parse_threshold("5")


@click.command()
@click.option("--from", "low")
@click.option("--filter", "filter_")
def looking(low: str, filter_: str) -> None:
    raise InputError(f"{option('low')} {low}; {option('filter')} {filter_}; {option('key_after')}")


def test_a_command_names_its_options() -> None:
    with (
        naming_options(as_option),
        looking.make_context("looking", ["--from", "1", "--filter", "udp"]) as context,
        pytest.raises(InputError, match=r"^--from 1; --filter udp; --key-after$"),
    ):
        looking.invoke(context)
    assert option("low") == "low"


def test_command_lines_are_made_of_their_parts() -> None:
    typed = command_line("run", "a.yaml", set=["a=1", "b=2"], resume=True, testbed=False)
    assert typed == "tailtap run a.yaml --set a=1 --set b=2 --resume"
    assert command_line("host apply", "thp", "") == "tailtap host apply thp"
    assert options(cpus="2-3", allow_commands=True) == "--cpus 2-3 --allow-commands"
