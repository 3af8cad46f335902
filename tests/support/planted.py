"""Databases that strangers prepared."""

from __future__ import annotations

from pathlib import Path

import duckdb

SECRET = "what only root may read"


def plant(folder: Path) -> Path:
    """A `results.duckdb` with a view in place of `runs` that reads a file beside it."""
    (folder / "shadow").write_text(SECRET)
    database = folder / "results.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE VIEW runs AS SELECT 1 AS run, content AS slug, content AS experiment, "
            "1 AS repeat, '{}' AS variables, '{}' AS parameters, content AS error, "
            f"'imported' AS status FROM read_text('{folder / 'shadow'}')"
        )
    return database
