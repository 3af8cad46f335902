"""Whether what is printed and stored is what its published schema says."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from tailtap.records.record import tag_of
from tailtap.records.schemas import RECORDS, schema

SCHEMAS = {tag_of(kind): schema(kind) for kind in RECORDS}


def fits(content: Any) -> None:
    """Raise unless an object is what the schema that it names says."""
    Draft202012Validator(SCHEMAS[content["schema"]]).validate(content)
