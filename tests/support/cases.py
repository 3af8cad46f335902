"""How many random cases a property is tried with, where one takes long or many are needed."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings


def cases(most: int, **more: Any) -> settings:
    """So many; a third of them in continuous integration, which pays for each every time."""
    return settings(max_examples=-(-most // 3) if "CI" in os.environ else most, **more)
