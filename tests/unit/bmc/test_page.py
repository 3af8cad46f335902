"""docs/howto/bmc.md names every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailtap.bmc import MACHINES
from tailtap.measure.testbed.power import POWERS

PAGE = (Path(__file__).parents[3] / "docs/howto/bmc.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rows", "heading"), [(MACHINES, "# Controllers"), (POWERS, "## Switching")]
)
def test_the_page_names_every_key(rows: object, heading: str) -> None:
    section = PAGE[PAGE.index(heading) :]
    assert isinstance(rows, type(MACHINES))
    for name, kind in rows.working():
        [row] = re.findall(rf"^\| `{name}` \|.*$", section, re.MULTILINE)[:1]
        keys = set(kind.Options.model_fields) - {"name"}
        assert keys <= set(re.findall(r"`(\w+)[`:]", row)), name
