"""What a reader of the report's page sees."""

from __future__ import annotations

import html
import re

from tailtap.show.sections import Table


def visible(page: str) -> str:
    """The page's text as a reader sees it."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body))
    return re.sub(r"\s+", " ", text.replace("\u202f", " "))


def texts(table: Table) -> list[list[str]]:
    """What the page writes into the rows of a table, with plain blanks."""
    return [
        [
            re.sub("[\u00a0\u202f]", " ", cell.page(column.kind))
            for cell, column in zip(row.cells, table.columns, strict=True)
        ]
        for row in table.rows
    ]
