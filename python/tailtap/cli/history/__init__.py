"""`tailtap history`: the tail from commit to commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tailtap.cli.command import PATH
from tailtap.cli.completing import files

history_file: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--history",
    type=PATH,
    metavar="FILE",
    default=Path("history.duckdb"),
    shell_complete=files,
    help="The file of the history.",
)
