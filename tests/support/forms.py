"""Whether what is printed and stored is what its published schema says."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tailtap.records.record import tag_of
from tailtap.records.schemas import RECORDS, schema

SCHEMAS = {tag_of(kind): kind for kind in RECORDS}
"""The record that each schema is made from, when it is asked for: all of them take 0.2 s."""


@cache
def _validator(tag: str) -> Draft202012Validator:
    return Draft202012Validator(schema(SCHEMAS[tag]))


def fits(content: Any) -> None:
    """Raise unless an object is what the schema that it names says."""
    _validator(content["schema"]).validate(content)
