"""Prints docs/reference/licences.md: what a wheel contains and what it needs, with licences.

Rust crates come from cargo's metadata, Python packages from those that are installed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
MODULE = "tailtap-python"
TARGET = "x86_64-unknown-linux-gnu"
HEAD = """\
# Licences of others

For whoever redistributes a wheel.

tailtap is under the Apache License 2.0. Its eBPF programs are under that licence or the GPL 2.0:
the kernel demands the GPL of programs that call some of its functions. Below is what else a user of
a wheel gets. `make docs` writes this page.
"""


def crates() -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each crate that is compiled into the module."""
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        TARGET,
    ]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {one["id"]: one for one in told["packages"]}
    needs = {node["id"]: node["deps"] for node in told["resolve"]["nodes"]}
    [start] = [one["id"] for one in told["packages"] if one["name"] == MODULE]
    found, left = {start}, [start]
    while left:
        for one in needs[left.pop()]:
            linked = any(kind["kind"] is None for kind in one["dep_kinds"])
            macro = any(
                "proc-macro" in target["kind"] for target in packages[one["pkg"]]["targets"]
            )
            if linked and not macro and one["pkg"] not in found:
                found.add(one["pkg"])
                left.append(one["pkg"])
    for package in (packages[one] for one in found):
        if package["source"] is not None:  # the project's own have none
            yield package["name"], package["version"], package["license"] or "none stated"


def python_packages() -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each Python package that tailtap needs."""
    found: dict[str, Distribution] = {}
    left = [*_needed(distribution("tailtap"))]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found[name] = distribution(name)
            left += _needed(found[name])
    for name, one in found.items():
        yield name, one.version, _licence(one)


def _needed(one: Distribution) -> Iterator[str]:
    for text in one.requires or ():
        asked = Requirement(text)
        if asked.marker is None or asked.marker.evaluate({"extra": ""}):
            yield asked.name


def _licence(one: Distribution) -> str:
    told = one.metadata
    if expression := told.get("License-Expression"):
        return expression
    named = [row.rpartition(" :: ")[2] for row in told.get_all("Classifier") or ()
             if row.startswith("License :: ") and row != "License :: OSI Approved"]  # fmt: skip
    return ", ".join(named) or (told.get("License") or "none stated").splitlines()[0]


def by_licence(rows: Iterable[tuple[str, str, str]]) -> str:
    """A list of licences, each with its packages."""
    packages: dict[str, list[str]] = {}
    for name, version, licence in sorted(set(rows)):
        packages.setdefault(licence, []).append(f"{name} {version}")
    return "".join(f"- {licence}: {', '.join(packages[licence])}\n" for licence in sorted(packages))


def page() -> str:
    """The page."""
    return (
        f"{HEAD}\n## Compiled into the wheel (Rust)\n\n{by_licence(crates())}"
        f"\n## Installed beside it (Python)\n\n{by_licence(python_packages())}"
    )


if __name__ == "__main__":
    print(page(), end="")
