"""The results of an experiment as one DuckDB database."""

from __future__ import annotations

from tailtap.results.database.database import add_run, add_runs, begin_anew, kept_current, refresh

__all__ = ["add_run", "add_runs", "begin_anew", "kept_current", "refresh"]
