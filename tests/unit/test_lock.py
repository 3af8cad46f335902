"""The locks hold all that is installed, with hashes, and fit pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OF_PYTHON = {"pip", "setuptools"}
"""What an environment holds from its start."""


LOCKS = ("requirements.lock", "requirements-dev.lock")
"""What a user installs, and what the tests do."""


def locked(lock: str) -> dict[str, tuple[str, str]]:
    """The version of each package, and what stands behind it."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    rows = (re.match(r"(\S+)==(\S+)(.*)", line) for line in text.splitlines())
    return {canonicalize_name(row[1]): (row[2], row[3]) for row in rows if row}


def test_every_package_has_its_hashes_and_no_address() -> None:
    for lock in LOCKS:
        rows = locked(lock)
        assert len(rows) > 30
        assert all("--hash=sha256:" in rest for _, rest in rows.values())
        assert "://" not in (ROOT / lock).read_text()


def test_tests_have_what_users_have() -> None:
    users, tests = map(locked, LOCKS)
    assert len(users) < 50
    assert {name: row[0] for name, row in users.items()}.items() <= {
        name: row[0] for name, row in tests.items()
    }.items()


def test_it_fits_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for lock, extra in zip(LOCKS, (extras["build"], extras["dev"]), strict=True):
        rows = locked(lock)
        for text in (*project["dependencies"], *extra):
            asked = Requirement(text)
            version, _ = rows[canonicalize_name(asked.name)]
            assert asked.specifier.contains(version), text


def test_nothing_else_is_installed() -> None:
    rows = locked("requirements-dev.lock")
    for one in distributions():
        name = canonicalize_name(one.metadata["Name"])
        if name not in OF_PYTHON and name != "tailtap":
            assert rows[name][0] == one.version, name


def test_the_page_of_licences_is_that_of_what_is_locked() -> None:
    command = [sys.executable, str(ROOT / "scripts/licences.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (ROOT / "docs/reference/licences.md").read_text(), "make docs"
