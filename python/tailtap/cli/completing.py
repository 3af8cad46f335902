"""What a shell offers when somebody presses Tab: run folders, files, and names of options.

Each function here is a `shell_complete` of click. It is called with the word so far and returns
what may stand in its place. Where nothing of ours begins like the word, the shell offers its own
files, so that a way into other folders stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from click import Context, Parameter
from click.shell_completion import CompletionItem

Completer = Callable[[Context, Parameter, str], list[CompletionItem]]

MARKS = ("plan.json", "run.json", "evaluation.json", "search.json", "results.duckdb")
"""A folder with one of these files holds results."""
CAPTURES = (".pcap", ".pcapng", ".erf", ".mscap", ".stamps", ".marks")
COMPRESSED = ("", ".zst", ".gz", ".xz", ".lz4", ".bz2")


def result_folders(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Experiment folders and run folders; below an experiment folder its runs."""
    return _items(_result_folders(incomplete), incomplete, "dir")


def named_folders(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """The same after a name and an equals sign, as in `tailtap compare a=results/a`."""
    name, equals, path = incomplete.rpartition("=")
    found = [f"{name}{equals}{folder}" for folder in _result_folders(path)]
    return _items(found, incomplete, "dir")


def experiment_files(
    context: Context, parameter: Parameter, incomplete: str
) -> list[CompletionItem]:
    """YAML files."""
    return _items(_files(incomplete, (".yaml", ".yml")), incomplete, "file")


def captures(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Capture files."""
    return _items(_captures(incomplete), incomplete, "file")


def captures_or_folders(
    context: Context, parameter: Parameter, incomplete: str
) -> list[CompletionItem]:
    """Capture files and folders with results."""
    return _items([*_captures(incomplete), *_result_folders(incomplete)], incomplete, "file")


def folders(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Any folder, as the shell lists them."""
    return [CompletionItem(incomplete, type="dir")]


def files(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Any file, as the shell lists them."""
    return [CompletionItem(incomplete, type="file")]


def one_of(*names: str) -> Completer:
    """A completer of names that are known beforehand."""

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        return _plain(names, incomplete)

    return complete


def profiles(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """The profiles of `tailtap verdict`."""
    from tailtap.analysis.verdict.profiles import PROFILES

    return _plain(PROFILES, incomplete)


def settings(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Paths of an experiment file whose values are names, with these names."""
    from tailtap.lab.forwarders import FORWARDERS
    from tailtap.lab.generators import GENERATORS
    from tailtap.lab.platforms import PLATFORMS

    values: Mapping[str, Iterable[str]] = {
        "dut.platform": PLATFORMS,
        "dut.forwarder": FORWARDERS,
        "traffic.generator": GENERATORS,
    }
    return _plain((f"{path}={name}" for path in values for name in values[path]), incomplete)


def selections(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Words of a selection: `own`, `imported`, and the runs of the folders on the command line."""
    # An option without its value ends click's parsing: the arguments before it are unnamed.
    slugs = [name for folder in context.args for name in _names(Path(folder, "runs"))]
    return _plain(["own", "imported", *slugs], incomplete)


def _result_folders(incomplete: str) -> list[str]:
    found = [path for path in _paths(incomplete) if _has(path, MARKS)]
    place, start = _split(incomplete)
    if place and _has(place, ("plan.json",)):
        found += _result_folders(f"{place}runs/{start}")
    return found


def _captures(incomplete: str) -> list[str]:
    return _files(incomplete, [kind + packed for kind in CAPTURES for packed in COMPRESSED])


def _files(incomplete: str, suffixes: Sequence[str]) -> list[str]:
    return [path for path in _paths(incomplete) if path.endswith(tuple(suffixes))]


def _paths(incomplete: str) -> list[str]:
    """What begins like the word, written as the word is."""
    place, start = _split(incomplete)
    return [place + name for name in _names(place or ".") if name.startswith(start)]


def _split(incomplete: str) -> tuple[str, str]:
    """The folder with its slash, and the beginning of a name in it."""
    place, slash, start = incomplete.rpartition("/")
    return place + slash, start


def _names(folder: str | Path) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).expanduser().iterdir())
    except (OSError, RuntimeError):  # no such folder, no such user
        return []


def _has(folder: str, names: Iterable[str]) -> bool:
    return not set(names).isdisjoint(_names(folder))


def _items(found: Iterable[str], incomplete: str, otherwise: str) -> list[CompletionItem]:
    items = [CompletionItem(path) for path in found]
    return items or [CompletionItem(incomplete, type=otherwise)]


def _plain(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
