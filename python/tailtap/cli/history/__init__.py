"""`tailtap history`: the tail from commit to commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tailtap.cli.command import PATH

history_file: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--history",
    type=PATH,
    metavar="FILE",
    default=Path("history.duckdb"),
    help="The file of the history.",
)
