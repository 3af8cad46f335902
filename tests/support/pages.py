"""What a reader of the report's page sees."""

from __future__ import annotations

import html
import re


def visible(page: str) -> str:
    """The page's text as a reader sees it."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body))
    return re.sub(r"\s+", " ", text.replace("\u202f", " "))
