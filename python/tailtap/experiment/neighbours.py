"""`dut.neighbours`: what loads CPUs while packets are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator
from pydantic.functional_serializers import model_serializer

from tailtap.base.document import Misfit, explain
from tailtap.base.schema import Matching, NoOptions, Strict, Written, name_words
from tailtap.base.suggest import did_you_mean
from tailtap.experiment.fields import takes_at
from tailtap.lab.neighbours import NEIGHBOURS

MOST = 16


class OneNeighbour(Strict):
    """A kind of neighbour and its options, written ``{cpu: {cpus: [1], busy: 20}}``."""

    kind: str = Field(description="What it does.", examples=["cpu"])
    options: dict[str, Any] = Field(
        description="Where and how much.", examples=[{"cpus": [1], "busy": 20}]
    )

    _settings: BaseModel = PrivateAttr(default_factory=NoOptions)

    @property
    def settings(self) -> BaseModel:
        """Its options as an instance of its kind's `Options`."""
        return self._settings

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or len(data) != 1:
            raise ValueError(
                "a neighbour is one kind with its options, such as {cpu: {cpus: [1], busy: 20}}"
            )
        [(kind, options)] = data.items()
        if kind not in NEIGHBOURS:
            raise ValueError(
                f"there is no neighbour {kind!r}: {did_you_mean(str(kind), list(NEIGHBOURS))}"
            )
        if not isinstance(options, Mapping):
            raise ValueError(f"the options of {kind} are a mapping, such as {{cpus: [1]}}")
        return {"kind": kind, "options": dict(options)}

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> OneNeighbour:
        model = NEIGHBOURS[self.kind].Options
        try:
            self._settings = model.model_validate(self.options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            reason = explain(
                first,
                first["loc"],
                lambda _: list(model.model_fields),
                takes_at(model, first["loc"]),
            )
            raise Misfit((self.kind, *first["loc"]), reason) from error
        return self

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {self.kind: self.options}


Neighbours: TypeAlias = Annotated[
    dict[
        Annotated[str, Matching(r"^[a-z][a-z0-9-]{0,11}$", name_words(12, "batch"))], OneNeighbour
    ],
    Field(max_length=MOST),
    Written(
        "mapping from names to kinds with their options",
        schema={
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "object"},
                "minProperties": 1,
                "maxProperties": 1,
            },
            "maxProperties": MOST,
        },
    ),
]
