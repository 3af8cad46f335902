"""The page of kinds, made from the registries.

`python -m tailtap.cli.kinds` prints it, with the kinds of all installed packages; a test
compares it with docs/reference/kinds.md.
"""

from __future__ import annotations

from typing import Any

from tailtap.base.registry import Registry
from tailtap.doctor import REGISTRIES
from tailtap.host.changes.clean import KINDS as RESOURCES
from tailtap.host.knobs import TABLE
from tailtap.results.exporters import EXPORTERS

HEAD = """# Kinds, and how to add one

For authors of experiment files, and of packages that add kinds.

Made from the program by `make docs`; a test fails when it is stale.

tailtap knows several kinds of each part of an experiment. Another package can add kinds by Python
entry points: no line of tailtap changes. `tailtap doctor` shows the new kind, and experiment files
can name it. `python -m tailtap.experiment.reference` prints its options, and
`python -m tailtap.cli.kinds` prints this page with it. In the `pyproject.toml` of such a
package:

```toml
[project.entry-points."tailtap.forwarders"]
my-forwarder = "my_package:MyForwarder"
```

The entry point names an object, or a class of which one object is made. It follows the protocol in
the file below, which says what each member means. All have a `summary` (one sentence),
`documentation` (a paragraph) and `diagnose()`, which yields what `tailtap doctor` shows. Kinds with
options have a pydantic model, `Options`; each field has a description and examples, which the
reference and editors show. A platform has `traits`, which its runs keep, so that `tailtap compare`
knows what it is.

[experiment.md](experiment.md) says more of the kinds that experiment files name, with their
options.

A name that two packages use, and a package that cannot be imported, are errors as soon as that name
is asked for. Everything else works.
"""
FILES = {
    "platforms": "lab/platforms/__init__.py",
    "forwarders": "lab/forwarders/__init__.py",
    "generators": "lab/generators/__init__.py",
    "neighbours": "lab/neighbours/__init__.py",
    "taps": "lab/instruments/taps/kinds.py",
    "power": "measure/testbed/power.py",
    "boot ways": "measure/testbed/boot/__init__.py",
    "machines with a controller": "bmc/__init__.py",
    "exporters": "results/exporters/base.py",
}
"""Where the protocol of each kind is."""
DESCRIBED = ("platforms", "forwarders", "generators", "neighbours", "taps")
"""Kinds whose documentation is on the page of experiment files."""


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for title, kinds in {**REGISTRIES, "exporters": EXPORTERS}.items():
        parts.append(
            f"## {title.capitalize()}\n\n"
            f"Entry points `{kinds.group}`; the protocol is in `python/tailtap/{FILES[title]}`.\n"
        )
        if title in DESCRIBED:
            parts.append(f"{_names(kinds)}\n")
            continue
        rows = [
            f"- `{name}`{_from(kinds, name)}: {row.summary} {row.documentation}"
            for name, row in kinds.working()
        ]
        parts.append("\n".join(rows) + "\n")
    parts.append(
        f"## Resources\n\nEntry points `{RESOURCES.group}`: classes, under the name that is their "
        "`kind`; the class that\nthey are derived from is `Resource` in "
        "`python/tailtap/host/changes/resource.py`. `tailtap clean` undoes them.\n\n"
        f"{_names(RESOURCES)}\n"
    )
    parts.append(
        f"## Knobs\n\nEntry points `{TABLE.group}`: objects of the class `Knob` in "
        "`python/tailtap/host/knobs/knob.py`, which says\nwhat each field means. `tailtap host` "
        "and `dut.tuning` know them, and `tailtap improve` tries those whose\n`removes` and "
        "`details` fit to a cause that was found. Those of tailtap are in [host.md](host.md).\n"
    )
    return "\n".join(parts)


def _names(kinds: Registry[Any]) -> str:
    return ", ".join(f"`{name}`{_from(kinds, name)}" for name, _ in kinds.working())


def _from(kinds: Registry[Any], name: str) -> str:
    """The package that a kind comes from, unless it is tailtap."""
    package = kinds.package(name)
    return "" if package == "tailtap" else f" (of {package})"


if __name__ == "__main__":
    print(page(), end="")
