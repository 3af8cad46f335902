"""`python -m tailtap`: the command line, for hosts where the console script is not on the path."""

from __future__ import annotations

from tailtap.cli import start

start()
