"""What a reader of the report's page sees."""

from __future__ import annotations

import re

from tailtap.show.sections import Table


def texts(table: Table) -> list[list[str]]:
    """What the page writes into the rows of a table, with plain blanks."""
    return [
        [
            re.sub("[\u00a0\u202f]", " ", cell.page(column.kind))
            for cell, column in zip(row.cells, table.columns, strict=True)
        ]
        for row in table.rows
    ]
